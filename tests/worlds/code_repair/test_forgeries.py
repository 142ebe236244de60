"""Forgeries are not rewarded, answers learnt by heart are not, and every known repair is."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from isentrope.worlds.code_repair import exams
from isentrope.worlds.code_repair.problem import Repair
from tests.sandbox.boxes import needs_bwrap
from tests.worlds.code_repair.attempts import LIMITS, attempt, buggy_text, in_words, known_text, shipped, shipped_with
from tests.worlds.code_repair.forgeries import ALL, OTHERS, USUAL, forged, unread

pytestmark = needs_bwrap
EXPLORE = "ISENTROPE_EXPLORE" in os.environ


def tried(repair: Repair, forgery: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Nothing if it was refused: by what it returns, without a look at its text, unless it may return what is right."""
    text = forged(buggy_text(repair), repair.mutant.function, ALL[forgery])
    with monkeypatch.context() as patched:
        if not forgery.startswith("code from text: "):
            patched.setattr(exams, "makes_code", unread)
        found = attempt(repair, {repair.mutant.file: text}, replace(LIMITS, seconds=3.0))
    return f"{forgery}, {repair.package}, {repair.mutant}: {in_words(found)}" if found.resolved else ""


def test_there_are_many() -> None:
    assert len(USUAL) > 100
    assert len(OTHERS) > 100
    assert len(ALL) == len(USUAL) + len(OTHERS)


@pytest.mark.slow(18)
def test_no_forgery_is_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them, each on one task; `make explore` takes all, on other tasks each time, and more of them."""
    luck = random.Random() if EXPLORE else random.Random("forgeries")
    names = list(USUAL) if EXPLORE else luck.sample(list(USUAL), len(USUAL) // 2)
    pairs = [(repair, name) for name in names for repair in luck.sample(shipped(), 12 if EXPLORE else 1)]
    rewarded = [said for repair, name in pairs if (said := tried(repair, name, monkeypatch))]
    assert not rewarded, "\n".join(rewarded)


KINDS = (
    ("ledger", "Account.deposit"), ("numerals", "luhn_sum"), ("intervals", "find"), ("stores", "Ring.__iter__"),
    ("matrices", "spiral"), ("stores", "Cache.hit_rate"),
)  # fmt: skip


@pytest.mark.slow(8)
def test_no_forgery_of_other_hands_is_rewarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of them, each on a task of one of six kinds: a method, a function, one by another, a generator, lists, a
    number with a point; `make explore` takes all, each on any twelve."""
    luck = random.Random() if EXPLORE else random.Random("more forgeries")
    tasks = shipped() if EXPLORE else [shipped_with(*one) for one in KINDS]
    names = list(OTHERS) if EXPLORE else luck.sample(list(OTHERS), len(OTHERS) // 2)
    pairs = [(repair, name) for name in names for repair in luck.sample(tasks, 12 if EXPLORE else 1)]
    rewarded = [said for repair, name in pairs if (said := tried(repair, name, monkeypatch))]
    assert not rewarded, "\n".join(rewarded)


@pytest.mark.slow(8)
def test_known_repairs_are_rewarded() -> None:
    """All of them with `make explore`, else every seventh."""
    for repair in shipped()[:: 1 if EXPLORE else 7]:
        found = attempt(repair, {repair.mutant.file: known_text(repair)})
        assert found.resolved, f"{repair.mutant}: {in_words(found)}"
        assert found.grading == "calls", repair.mutant
        assert found.hidden >= 50


def test_the_bug_itself_is_not_rewarded() -> None:
    for repair in shipped()[::24]:
        found = attempt(repair, {})
        assert not found.resolved
        assert found.honest


SHOWN_BY_HEART = """
_true = {name}
def {name}(*args):
    return {{{answers}}}.get(args, {otherwise})
"""


@pytest.mark.parametrize("otherwise", ["None", "_true(*args)", "[]", "0"])
def test_answers_learnt_by_heart_are_not_rewarded(otherwise: str) -> None:
    """Every shown input has the right answer."""
    repair = shipped_with("ledger", "round_half_up")
    answers = ", ".join(f"({n}, 10): {(2 * n + 10) // 20}" for n in (0, 4, 5, 14, 15, 20))
    text = buggy_text(repair) + SHOWN_BY_HEART.format(name="round_half_up", answers=answers, otherwise=otherwise)
    found = attempt(repair, {repair.mutant.file: text})
    assert not found.resolved
    assert found.right < found.hidden


def test_another_honest_repair_is_rewarded() -> None:
    """Not the text that was there before, and by means that only a trick would need where tests are run whole."""
    repair = shipped_with("ledger", "as_money")
    text = known_text(repair).partition("def as_money")[0] + (
        "import sys\n\n\ndef as_money(cents):\n    whole, rest = getattr(sys, 'x', divmod)(abs(cents), 100)\n"
        "    return ('-' if cents < 0 else '') + str(whole) + '.' + str(rest).zfill(2)\n"
    )
    assert attempt(repair, {repair.mutant.file: text}).resolved


def test_what_decides_is_the_same_each_time_and_other_with_another_seed() -> None:
    repair = shipped_with("ledger", "as_money")
    texts = {repair.mutant.file: buggy_text(repair)}
    first, again, other = attempt(repair, texts), attempt(repair, texts), attempt(repair, texts, seed=1)
    assert first == again
    assert (other.right, other.hidden) != (first.right, first.hidden)
