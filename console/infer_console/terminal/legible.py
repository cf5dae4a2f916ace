"""Text that could be read in the colours that a theme names, and can be in those that the terminal has."""

from rich.color import Color, ColorSystem, blend_rgb
from rich.color_triplet import ColorTriplet

#: What WCAG 2 asks of text.
LEAST_CONTRAST = 4.5
_WHITE, _BLACK = ColorTriplet(255, 255, 255), ColorTriplet(0, 0, 0)
#: Parts of the way to white or black.
_STEPS = 8


def contrast(one: Color, other: Color) -> float:
    """Of two colours as WCAG 2 has it, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: Color) -> float:
    def linear(value: int) -> float:
        share = value / 255
        return share / 12.92 if share <= 0.03928 else ((share + 0.055) / 1.055) ** 2.4

    red, green, blue = color.get_truecolor()
    return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue)


def downgraded(color: Color, ground: Color | None, colors: ColorSystem) -> Color:
    """``color`` in what the terminal has. Where the ground that it is shown on comes out so that it could not
    be read any more, the next one towards white or black that can."""
    nearest = color.downgrade(colors)
    if ground is None or ground.is_default or contrast(color, ground) < LEAST_CONTRAST:
        return nearest
    below = ground.downgrade(colors)
    end = _WHITE if _luminance(color) > _luminance(ground) else _BLACK
    for step in range(1, _STEPS + 1):
        if contrast(nearest, below) >= LEAST_CONTRAST:
            break
        blended = blend_rgb(color.get_truecolor(), end, step / _STEPS)
        nearest = Color.from_triplet(blended).downgrade(colors)
    return nearest
