"""Colours: a dark and a light theme whose line colours stay apart for colour-blind eyes, and one for 16 colours.

The line colours are Okabe and Ito's set ("Color Universal Design", 2008), lightened or darkened where the background
asks for it. Every line also has a glyph of its own: nothing is told by colour alone.
"""

from textual.theme import BUILTIN_THEMES, Theme

LINE_COLOURS = {
    "line-1": "#56B4E9", "line-2": "#E69F00", "line-3": "#2FB48A",
    "line-4": "#F0E442", "line-5": "#DA8FBA", "line-6": "#E8684A",
}  # fmt: skip

DARK = Theme(
    name="playground-dark",
    primary="#4C8DD6",
    secondary="#7AA2C9",
    accent="#F0B429",
    warning="#E69F00",
    error="#E8684A",
    success="#2FB48A",
    foreground="#D8DEE9",
    background="#11151C",
    surface="#161B24",
    panel="#202733",
    dark=True,
    variables={
        **LINE_COLOURS,
        "border": "#F0B429", "footer-key-foreground": "#F0B429", "input-selection-background": "#4C8DD6 40%",
        "block-cursor-text-style": "none", "footer-background": "#161B24",
    },
)  # fmt: skip

LIGHT = Theme(
    name="playground-light",
    primary="#0B5CAD",
    secondary="#46617D",
    accent="#8A5A00",
    warning="#9A5B00",
    error="#B3361B",
    success="#00694C",
    foreground="#1B222C",
    background="#FAFAF7",
    surface="#F1F1EC",
    panel="#E4E5E0",
    dark=False,
    variables={
        "line-1": "#0072B2", "line-2": "#B35C00", "line-3": "#00795A",
        "line-4": "#7A6F00", "line-5": "#A04A7D", "line-6": "#B3361B",
        "border": "#8A5A00", "footer-key-foreground": "#8A5A00", "input-selection-background": "#0B5CAD 30%",
        "block-cursor-text-style": "none", "footer-background": "#F1F1EC",
    },
)  # fmt: skip

# For terminals with 16 colours, and for people who set those themselves.
SIXTEEN = Theme(
    name="playground-16",
    primary="ansi_blue",
    secondary="ansi_cyan",
    accent="ansi_bright_yellow",
    warning="ansi_yellow",
    error="ansi_bright_red",
    success="ansi_bright_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    ansi=True,
    variables={
        **BUILTIN_THEMES["ansi-dark"].variables,
        "line-1": "ansi_bright_cyan", "line-2": "ansi_bright_yellow", "line-3": "ansi_bright_green",
        "line-4": "ansi_white", "line-5": "ansi_bright_magenta", "line-6": "ansi_bright_red",
        "border": "ansi_bright_yellow", "footer-key-foreground": "ansi_bright_yellow",
    },
)  # fmt: skip

THEMES = (DARK, LIGHT, SIXTEEN)


def theme_for(color_system: str | None) -> str:
    """The name of the theme to begin with on a terminal of this color system ("truecolor", "256", "standard")."""
    return SIXTEEN.name if color_system in ("standard", "windows") else DARK.name
