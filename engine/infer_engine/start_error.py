"""Why the server could not start."""


class StartError(Exception):
    """The server cannot serve; ``str()`` is one line for the operator."""
