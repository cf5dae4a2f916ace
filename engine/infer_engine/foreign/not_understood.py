"""A server answered with something that is not what it speaks."""


class NotUnderstoodError(Exception):
    """``str()`` says what was not understood, on one line."""


class KeyWantedError(NotUnderstoodError):
    """It does not say what it is to whoever shows no key: ``status`` is 401 or 403."""

    def __init__(self, status: int) -> None:
        super().__init__(f"it asks for a key: it answers {status}")
        self.status = status
