"""Why the server could not start."""


class StartError(Exception):
    """The server cannot serve; ``str()`` is one line for the operator. ``setting``: the one that names what
    cannot be had, where another value of it would do."""

    def __init__(self, message: str, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting
