"""From which sizes on a screen is narrow, normal, wide; tiny, short, tall: classes that style sheets ask for."""

HORIZONTAL = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # cells
VERTICAL = [(0, "-tiny"), (16, "-short"), (32, "-tall")]
