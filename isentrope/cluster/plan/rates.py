"""How quickly a card does the parts of a step: measured on an H200, scaled from there by datasheet, or from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from isentrope.cluster.plan.cards import CARDS, MEASURED, Card
from isentrope.cluster.plan.lengths import Lengths
from isentrope.core.command import command
from isentrope.core.errors import ConfigError
from isentrope.core.limits import read_bounded

RATES_BYTES = 16 * 2**20
MOST_TURNS, MOST_TOKENS = 10_000_000, 10_000_000  # of a step, of a turn


@dataclass(frozen=True)
class Rates:
    """What is reached, not what a datasheet promises."""

    source: str  # where the numbers come from, in words
    number: int  # bytes of a number that is computed with
    bandwidth: float  # bytes a second, of weights and caches that are read
    products: float  # operations a second, of prompts that are read
    drawing: float  # the same with one token of each conversation
    learning: float  # the same of forward and backward passes
    layer: float  # seconds of a layer of a pass, whatever it computes
    smallest: float  # seconds of a layer's products that no batch is too small for
    row: float  # seconds of a token that is drawn, besides
    response: float  # seconds of the host for each response: packing, handing out
    traffic: float  # how often activations are moved in a prompt's pass, as multiples of costs.py's count
    moved: float  # the same of learning
    laid: float  # seconds of the host for each token of an update: what comes before and beside the card's work
    piece: float  # seconds of a pass of scoring or learning, whatever it computes
    patience: int  # steps that a prompt waits for others, so that several are read at once
    late: int  # tokens that are drawn behind a response's end, before the host knows of it
    turn: float  # seconds of a turn in the trainer's process: its task, the next prompt, the record
    padding: str  # of a prompt's pass: none; recorded, to the sizes that are recorded; all, as it was before that
    together: bool  # all conversations answer together, then all their tasks step

    def scaled(self, card: Card) -> Rates:
        """Those of another card, as its datasheet stands to that of the measured one. What is bound by the host and by
        the start of kernels stays."""
        base = CARDS[MEASURED]
        wide, quick = card.bandwidth / base.bandwidth, card.products / base.products
        return replace(
            self,
            source=f"scaled by datasheet from those of {base.title}, not measured",
            bandwidth=self.bandwidth * wide,
            products=self.products * quick,
            drawing=self.drawing * quick,
            learning=self.learning * quick,
        )

    def data(self) -> dict[str, Any]:
        return asdict(self)


H200 = Rates(
    source="measured on one H200",
    number=2,
    bandwidth=4.13e12,
    products=692e12,
    drawing=692e12,
    learning=600e12,
    layer=11.9e-6,
    smallest=17e-6,
    row=0.235e-6,
    response=58.3e-6,
    traffic=2.0,
    moved=12.6,
    laid=2.1e-6,
    piece=0.0,
    patience=8,
    late=1,
    turn=300e-6,
    padding="recorded",
    together=False,
)
"""Most of them fitted by `python -m tools.plan_docs --fit` to figures of docs/plan.toml. `smallest` is four products of
4.3 microseconds, measured; patience, late and padding are the native engine's; `turn` is what the household world and
its prompts take on a CPU (0.1 to 0.2 ms) and a guess at the rest."""


def rates_of(card: Card) -> Rates:
    return H200 if card.name == MEASURED else H200.scaled(card)


def read_rates(path: Path) -> tuple[Rates, list[Lengths]]:
    """From a file that `isentrope plan --measure` wrote, with the episodes of the steps that were measured."""
    wanted = f"expected what {command('plan')} --measure {path} writes"
    try:
        given: Any = json.loads(read_bounded(path, RATES_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as rates ({error}); {wanted}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{path} is not a JSON object; {wanted}")
    table = cast("dict[str, Any]", given)
    rates = from_data(table, str(path), wanted)
    try:
        return rates, [lengths_from(step) for step in table.get("steps", [])]
    except (ValueError, LookupError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path}: its steps cannot be read ({error}); {wanted}") from error


def lengths_from(step: Mapping[str, Any]) -> Lengths:
    """As they are kept in a file: checked, as it may come from anywhere."""
    read, new = (np.array(step[name], dtype=np.int64) for name in ("read", "new"))
    size = int(step["group_size"])
    if read.shape != new.shape or read.ndim != 2 or not 0 < read.size <= MOST_TURNS or min(read.min(), new.min()) < 0:
        raise ValueError("read and new are no tables of the same size")
    if read.max() + new.max() > MOST_TOKENS or not 0 < size <= len(new) or len(new) % size or (new[:, 0] < 1).any():
        raise ValueError(
            f"groups of {size} among {len(new)} episodes, turns of up to {read.max() + new.max():,} tokens"
        )
    return Lengths(read, new, size, bool(step.get("window", False)))


def from_data(given: Mapping[str, Any], name: str, wanted: str) -> Rates:
    found: dict[str, Any] = {}
    for item in fields(Rates):
        value = given.get(item.name)
        kinds = {"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)}[str(item.type)]
        wrong = not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds)
        if wrong or (isinstance(value, int | float) and not 0 <= value < 1e30):
            raise ConfigError(f"{name}: {item.name} is {value!r:.60}; {wanted}")
        found[item.name] = value
    quick = ("bandwidth", "products", "drawing", "learning", "number")
    if still := [name for name in quick if not found[name]]:
        raise ConfigError(f"{name}: {still[0]} is 0; {wanted}")
    return Rates(**found)
