"""The sizes of passes over new tokens: what is recorded, and to what a pass is padded."""

from __future__ import annotations

MOST_RECORDED = 16384  # new tokens; of several prompts, no pass reads more
BUSY = 3_000_000_000_000  # weights times tokens: such a pass takes a GPU longer than the host to start its kernels


def bucket(count: int) -> int:
    """The size that a pass over so many rows or tokens is recorded for: powers of two, and halfway between them."""
    size = 8
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 32 and count <= size * 3 // 4 else size


def most_recorded(weights: int) -> int:
    """New tokens of the largest pass that is recorded, of a model with so many weights. Larger ones keep a GPU busy
    without that, and are hardly padded."""
    return bucket(min(MOST_RECORDED, max(64, BUSY // weights)))


def padded(tokens: int, recorded: int = MOST_RECORDED) -> int:
    """A size for at least so many tokens: one that passes are recorded for, or up to a sixteenth more."""
    if tokens <= recorded:
        return bucket(max(64, tokens))
    step = max(64, (1 << (tokens.bit_length() - 1)) // 16)
    return -(-tokens // step) * step
