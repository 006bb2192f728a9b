"""Which version this is."""

from importlib import metadata

MISSING = "not installed"


def installed(package: str) -> str:
    """The version of an installed package, found without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return MISSING


def version_line() -> str:
    """``rlhf-tui 0.1.0``."""
    version = installed("rlhf-tui")
    return f"rlhf-tui {version if version != MISSING else '(a checkout that is not installed)'}"
