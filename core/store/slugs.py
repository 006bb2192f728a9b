"""Folder names for titles: whatever a person types, every file system can hold."""

import re
import unicodedata

MAX_LENGTH = 60
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul", "clock", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))}
)  # device names of Windows, with any extension
_SLUG = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)


def slug(title: str) -> str:
    """``title`` in lower-case letters, digits and single hyphens, at most 60 of them; ``session`` if nothing is left.

    Letters with accents lose them; other scripts and emoji fall away, so titles with different slugs differ, but
    different titles may share one.
    """
    plain = unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:MAX_LENGTH].rstrip("-")
    if name in _RESERVED:
        name += "-session"
    return name or "session"


def is_slug(name: str) -> bool:
    """May ``name`` be a session's folder? Never with a separator, a leading dot or anything that hides."""
    return bool(_SLUG.fullmatch(name)) and len(name) <= MAX_LENGTH + 10 and name not in _RESERVED
