"""The printable stand-ins that byte-level BPE vocabularies write bytes with.

Bytes that print in Latin-1 stand for themselves; the other 68 take the characters from U+0100 on, in order,
so that a space is ``Ġ``.
"""


def _alphabet() -> dict[str, int]:
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in itself]
    return {chr(byte): byte for byte in itself} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF_CHARACTER = _alphabet()


def bytes_of_token(token: str) -> bytes:
    """The bytes that ``token`` spells; with characters outside the alphabet (a malformed file) its own
    UTF-8."""
    try:
        return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
    except KeyError:
        return token.encode()
