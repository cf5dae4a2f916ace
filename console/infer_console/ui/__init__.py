"""The only place that imports Textual. What Textual reads from the environment when it is imported is set
here, which runs before any module of this package."""

import os

_ENVIRONMENT = {
    "TEXTUAL_FPS": "120",  # its timer lets up to two periods pass after a frame, and a key waits that long
    "TEXTUAL_ANIMATIONS": "none",
    "TEXTUAL_SMOOTH_SCROLL": "0",
    "TEXTUAL_DISABLE_KITTY_KEY": "1",  # a dropped SSH connection would leave the terminal in that mode
}
for _name, _value in _ENVIRONMENT.items():
    os.environ.setdefault(_name, _value)
