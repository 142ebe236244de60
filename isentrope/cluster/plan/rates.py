"""How quickly a card does the parts of a step: measured on an H200, scaled from there by datasheet, or from a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from isentrope.cluster.plan.cards import CARDS, MEASURED, Card
from isentrope.core.errors import ConfigError
from isentrope.core.limits import SETTINGS_BYTES, read_bounded


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
    source="measured on one H200 (docs/plan.md)",
    number=2,
    bandwidth=4.0e12,
    products=590e12,
    drawing=590e12,
    learning=590e12,
    layer=12e-6,
    smallest=17e-6,
    row=0.4e-6,
    response=60e-6,
    traffic=1.0,
    moved=7.0,
    piece=0.0,
    patience=8,
    late=1,
    turn=300e-6,
    padding="recorded",
    together=False,
)
"""Fitted by `python -m tools.plan_docs --fit` to the calibration figures of docs/plan.toml."""


def rates_of(card: Card) -> Rates:
    return H200 if card.name == MEASURED else H200.scaled(card)


def read_rates(path: Path) -> Rates:
    """From a file that `isentrope plan --measure` wrote."""
    wanted = f"expected what isentrope plan --measure {path} writes"
    try:
        given: Any = json.loads(read_bounded(path, SETTINGS_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as rates ({error}); {wanted}") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{path} is not a JSON object; {wanted}")
    return from_data(cast("Mapping[str, Any]", given), str(path), wanted)


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
