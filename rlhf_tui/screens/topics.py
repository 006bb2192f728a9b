"""What F1 says; widgets and screens give topics, the help screen shows them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HelpTopic:
    """Title and paragraphs, each a heading ("" for none) and a text."""

    title: str
    paragraphs: tuple[tuple[str, str], ...]
