"""Splits of worlds whose games are made from a seed: every split has its own range of seeds."""

from __future__ import annotations

from collections.abc import Sequence

from isentrope.core.errors import TaskError
from isentrope.worlds.contract import Expert, Instance

# split -> its first seed; all lie below 2**32, which every generator takes. A run begins its training games anywhere
# below 2**31 and takes the next ones from there, so there have to be some more
FIRST = {"train": 0, "dev": 3 * 2**30, "test": 7 * 2**29}
SEEDS = {"train": 3 * 2**30, "dev": 2**29, "test": 2**29}
SPLITS = tuple(FIRST)


class SeededWorld:
    """What such worlds share: game number i of a split has the seed i of the split's range."""

    name: str
    kinds: tuple[str, ...]

    def splits(self) -> Sequence[str]:
        return SPLITS

    def size(self, split: str) -> int | None:
        self.check(split, 0)
        return None

    def instance(self, split: str, index: int) -> Instance:
        self.check(split, index)
        return Instance(self.name, split, index, self.kinds[index % len(self.kinds)])

    def fingerprint(self, instance: Instance) -> tuple[str, int]:
        """Different seeds are different games, though two of them may happen to start alike."""
        return instance.kind, self.seed(instance)

    def expert(self, seed: int) -> Expert | None:
        return None

    def seed(self, instance: Instance) -> int:
        self.check(instance.split, instance.index)
        return FIRST[instance.split] + instance.index

    def check(self, split: str, index: int) -> None:
        if split not in SPLITS:
            raise TaskError(f"the world {self.name} has no split {split!r}; it has {', '.join(SPLITS)}")
        if not 0 <= index < SEEDS[split]:
            raise TaskError(f"there is no {self.name} game number {index} in {split}; it has 0 to {SEEDS[split] - 1}")


def play_order(started: bool) -> None:
    """Refuse a step that has no episode to go on."""
    if not started:
        raise TaskError("step was called without a running episode: start an instance first")
