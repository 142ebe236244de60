"""The object that the loop asks: what it adds, and that its state is all it needs."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.config.schema import InstrumentSettings
from isentrope.core.types import Scores
from isentrope.diagnosis.alarms import NAMES
from isentrope.metrics.glossary import entry_of
from isentrope.metrics.observe import Observer, Running
from isentrope.runs.token_texts import TokenTexts
from tests.builders.episodes import episode
from tests.builders.turns import turn

LETTERS = TokenTexts([bytes([code]) for code in range(256)])


def test_every_alarm_can_be_acted_on() -> None:
    choices = InstrumentSettings.__dataclass_fields__["alarms"].metadata["choices"]
    assert sorted(choices) == sorted(NAMES)
    assert set(InstrumentSettings().alarms) <= set(NAMES)


def test_a_step_with_scores_and_one_without() -> None:
    observer, played = Observer(LETTERS), [episode(turn([1.0, 1.0], [-3.0, -2.0], action="look"))]
    one = np.zeros(1, dtype=np.int64)
    scores = Scores(one, one, one + 2, np.ones(2, dtype=np.float32), np.ones(2, dtype=np.float32))
    first = observer.look(1, played, scores, {"entropy/token": 1.0, "response/tokens": 2.0})
    assert first.metrics == {
        "degeneracy/loops": 0.0, "degeneracy/hallucinated": 0.0, "drift/predicted": 1.5, "phase": 0.0
    }  # fmt: skip
    second = observer.look(2, played, None, {"entropy/token": 1.25})
    assert (second.metrics["drift/measured"], second.metrics["drift/agreement"]) == (0.25, 1.0)
    assert "drift/predicted" not in second.metrics
    assert observer.look(3, [], None, {}).metrics.keys() == {"drift/agreement", "phase"}


def test_an_alarm_is_a_metric_and_an_event() -> None:
    running = Running()
    seen = [running.look(step, {"advantage/zero_groups": 1.0, "success/all": 0.0}) for step in range(1, 9)]
    assert [step for step, one in enumerate(seen, start=1) if "alarm/no_signal" in one.metrics] == [5]
    assert [event["name"] for event in seen[4].events] == ["no_signal"]


values = st.floats(0, 3, allow_subnormal=False) | st.none() | st.just(math.nan)
curves = st.lists(
    st.fixed_dictionaries(
        dict.fromkeys(("entropy/token", "drift/predicted", "response/tokens", "likelihood/valid"), values)
    ),
    max_size=30,
)


@given(curves, st.integers(0, 29))
@settings(max_examples=50, deadline=None)
def test_its_state_is_all_it_needs(steps: list[dict[str, float | None]], cut: int) -> None:
    whole, again = Running(), Running()
    for number, metrics in enumerate(steps):
        if number == cut:
            fresh = Running()
            fresh.load_state_dict(json.loads(json.dumps(again.state_dict())))
            again = fresh
        told = whole.look(number, metrics)
        assert again.look(number, metrics) == told
        for key, value in told.metrics.items():
            assert entry_of(key)
            assert math.isfinite(value), key
