"""Text for the clipboard of the machine that the operator sits at: OSC 52, through tmux where one is in
between."""

from base64 import b64encode

from infer_console.terminal.safe_text import SafeText

#: Terminals take less than this of one sequence, and tmux no more; what is longer is refused, not cut.
MAX_BYTES = 56_000


def copy_sequence(text: SafeText, *, tmux: bool) -> str | None:
    """What makes the terminal put ``text`` into its clipboard; None where it is too long. tmux passes a
    sequence on when it is wrapped, its every ESC doubled (and ``allow-passthrough`` is on)."""
    data = text.encode()
    if len(data) > MAX_BYTES:
        return None
    sequence = f"\x1b]52;c;{b64encode(data).decode()}\x1b\\"
    if not tmux:
        return sequence
    # tmux takes the plain sequence itself with set-clipboard on, the wrapped one only passes through.
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"{sequence}\x1bPtmux;{doubled}\x1b\\"
