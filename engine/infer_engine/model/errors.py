"""What can be wrong with a model, in words a person can act on."""


class ModelError(Exception):
    """The model cannot be served; ``str()`` says why and what to do. What it quotes of the model's files
    cannot reach a terminal as an escape."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(map(_printable, message)))


class ModelUnavailable(ModelError):
    """The model's files are not here and could not be fetched."""


class ModelUnsupported(ModelError):
    """The file is damaged, or of a kind that this engine does not run."""


class MemoryShort(ModelError):
    """The machine lacks the memory that was asked for."""


def _printable(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return character.encode("unicode_escape").decode()
