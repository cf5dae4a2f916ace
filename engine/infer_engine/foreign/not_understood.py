"""A server answered with something that is not what it speaks."""


class NotUnderstoodError(Exception):
    """``str()`` says what was not understood, on one line."""
