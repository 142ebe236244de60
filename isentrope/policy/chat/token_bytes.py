"""The bytes that a token of a Hugging Face vocabulary stands for."""

from __future__ import annotations


def _byte_alphabet() -> dict[str, int]:
    """Byte-level BPE writes each byte as one character: printable ones as themselves, the rest from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(b): b for b in plain}
    for i, b in enumerate(b for b in range(256) if b not in plain):
        table[chr(256 + i)] = b
    return table


ALPHABET = _byte_alphabet()


def token_bytes(word: str, byte_level: bool) -> bytes:
    if byte_level:
        return bytes(ALPHABET.get(c, 63) for c in word)
    if word.startswith("<0x") and word.endswith(">") and len(word) == 6:
        return bytes([int(word[3:5], 16)])
    return word.replace("\u2581", " ").encode()
