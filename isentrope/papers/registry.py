"""History of the second edition's rules: `rules.json`, beside this file, under version control.

    python -m isentrope.papers.registry "why"     # writes an entry for every rule that differs from its last one

A test fails while a rule differs from its last entry. Entries are only ever added: a rule that changed after runs it is
applied to were made is marked in the ledger, with the reason.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import ConfigError
from isentrope.papers import actre, aem, epo, seal
from isentrope.papers.judge import find
from isentrope.papers.measures import converged_success, log_mean
from isentrope.papers.record import Arm, Claim, Measure, Part, Premise, Select
from isentrope.papers.select import place
from isentrope.runs.atomic import write_atomically
from isentrope.study.cells import Cell
from isentrope.study.plan import Plan, Study
from isentrope.study.read import DONE, StudyData, StudyRun

# Fingerprint of each decision rule, so that a change shows in review.
#
# It is taken over the rule's texts and numbers, and over what its functions compute on made-up runs, always the same,
# to nine digits: code may be moved and rewritten as long as it computes the same. How findings become verdicts is
# shared by all rules and has a fingerprint of its own.


# -- made-up runs that rules are tried on


_ON_GRPO: tuple[dict[str, str], ...] = (
    {}, {"method": "actre", "variant": "no_stage1"}, {"method": "epo"}, {"method": "seal", "alpha": "0.1"},
    {"method": "aem"}, {"method": "ea"}, {"method": "entropy_bonus"},
)  # fmt: skip
CELLS = (*({"algorithm": "grpo"} | tags for tags in _ON_GRPO), {"algorithm": "gigpo"})
SEEDS = (0, 1, 2, 3, 4, 5)
STEPS = (60, 360)
_HEIGHTS = (0.9, 0.17, 0.9, 0.0, 0.2, 0.12)  # by seed: from hardly an eruption to a high one, and none
_KINDS = {"pick": 24, "heat": 18, "look": 9}
_PROBES = ("probe/delta_h", *(f"probe/interference/{sign}{per}" for sign in ("negative", "positive")
                              for per in ("", "_per_token")))  # fmt: skip


@cache
def battery() -> tuple[StudyData, ...]:
    """Two studies: short runs from one start, long ones from two."""
    return tuple(_study(steps) for steps in STEPS)


def _study(steps: int) -> StudyData:
    cells = [("-".join(tags.values()), tags) for tags in CELLS]
    runs = tuple(_run(name, tags, seed, steps) for name, tags in cells for seed in SEEDS)
    plan = tuple(Cell(name, tags, (), SEEDS) for name, tags in cells)
    return StudyData(Study(Plan(name=f"battery-{steps}"), plan), runs)


def _run(name: str, tags: dict[str, str], seed: int, steps: int) -> StudyRun:
    chance = random.Random(f"{name} {seed} {steps}")
    common = 0.12 * random.Random(f"{seed} {steps}").random()  # what the runs of a seed share
    lift = 0.06 * chance.random() + common + (0.05 if "method" in tags else 0.0)
    return StudyRun(
        name, tags, seed, DONE, config={"run.steps": steps, "policy.model": "toy"}, parameters=1000,
        start=f"start {seed % 2 if steps > 100 else 0}",
        train=tuple(_row(chance, step, steps, lift, seed) for step in range(1, steps + 1)),
        evals=tuple(_eval(chance, step, steps, lift) for step in range(0, steps + 1, 10)),
        timings=tuple(_timing(chance, step) for step in range(1, steps + 1)),
        begun="2030-01-01T00:00:00Z",
    )  # fmt: skip


def _row(chance: random.Random, step: int, steps: int, lift: float, seed: int) -> dict[str, Any]:
    done = step / steps
    height = _HEIGHTS[seed] + lift * (seed % 2 == 0)
    last = 240 if seed == 2 else steps  # two eruptions instead of three
    hill = max(0.0, 1 - abs(step % 120 - 60) / 15) * height * (steps > 100 and step <= last)
    entropy = 0.3 + 0.5 * max(0.0, 1 - 6 * done) + hill + 0.02 * chance.random()
    row: dict[str, Any] = {"step": step, "kind": "train", "entropy/token": entropy}
    row |= {"entropy/action": entropy / 2, "likelihood/valid": -entropy, "likelihood/solved": -entropy / 3}
    row |= {"valid_ratio": min(1.0, 0.5 + lift + 3 * done), "degeneracy/duplication": 0.02 + 0.1 * hill + 0.05 * done}
    row |= {"success/all": 0.2 + 0.6 * min(1.0, 2 * done) + 0.05 * chance.random(), "response/tokens": 50 + 20 * hill}
    if step == 1 or step % 5 == 0:
        row |= {key: 0.2 + lift + 0.1 * chance.random() - 0.3 * (step % 20 == 0) for key in _PROBES}
    return row


def _eval(chance: random.Random, step: int, steps: int, lift: float) -> dict[str, Any]:
    level = 0.3 + 0.4 * min(1.0, 2 * step / steps) + lift
    told: dict[str, Any] = {"step": step, "kind": "eval"}
    for kind, games in _KINDS.items():
        told |= {f"eval/unseen/success/{kind}": level + (lift if kind == "heat" else 0.0) + 0.02 * chance.random()}
        told |= {f"eval/unseen/games/{kind}": games}
    solved = sum(told[f"eval/unseen/success/{kind}"] * games for kind, games in _KINDS.items())
    return told | {"eval/unseen/success": solved / sum(_KINDS.values())}


def _timing(chance: random.Random, step: int) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step, "kind": "train", "tokens_per_second/update": 900 + 200 * chance.random()}
    return told | {"seconds/rollout": 1.0, "seconds/update": 0.5, "seconds/shape": 0.01 * chance.random()}


DECISION = "decision"
DIGITS = 9


def digest_of(claim: Claim) -> str:
    return _short(_plain(claim))


def digest_of_decision() -> str:
    """Over the findings of rules that try every way to a verdict."""
    placed = place(battery())
    return _short([_plain(asdict(found)) for claim in _trials() for found in find(claim, placed)])


def _trials() -> tuple[Claim, ...]:
    success = Measure(converged_success, "success", (), alike=(0.05, 0.95), by_kind=True)
    entropy = Measure(log_mean, "entropy", (), (("key", "entropy/token"), ("begin", 0.0), ("end", 0.5)))
    bare, other = Select("grpo"), Select("grpo", "epo")
    met = Premise("met", Arm.both, success, 0.1, "more")
    unmet = Premise("unmet", Arm.control, success, 0.1, "less", upwards=False)
    clear = Premise("clear", other, entropy, 0.0, "more", against=bare, clear=True)
    ratio = Premise("ratio", other, success, 0.5, "more", against=bare)
    up = Part("up", other, success, 0.0, 0.02, (bare,), premises=(met, ratio), means=("above", "below"))
    down = Part("down", Select("grpo", "seal"), entropy, 0.0, -0.1, (bare,), upwards=False, premises=(clear,))
    alone = Part("alone", Select(("grpo", "gigpo")), entropy, 0.0, -0.1, upwards=False)
    shares = Part("shares", bare, Measure(_higher, "above", ()), 0.5, 0.5, shares=True)
    barred = Part("barred", other, success, 0.0, 0.02, (bare,), premises=(unmet,))
    missing = Part("missing", Select("ppo"), success, 0.0, 0.02, (bare,))
    refuted = Part("refuted", bare, success, 0.0, 0.05, (other,), means=("above", "below"))
    parts = {"two": (up, down), "one": (alone,), "shares": (shares,), "barred": (up, barred), "missing": (up, missing)}
    parts |= {"refuted": (refuted,), "three": (up, refuted, alone), "few": (replace(up, premises=()),)}
    return tuple(Claim(name, "", "", several, 50, "") for name, several in parts.items())


def _higher(run: Any) -> float:
    return float((converged_success(run) or 0.0) > 0.82)


def _plain(value: Any) -> Any:
    """What JSON can hold. A measure is told by what it says of the made-up runs, and so is a condition on runs."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, Measure):
        told = {one.name: getattr(value, one.name) for one in fields(value) if one.name != "function"}
        return _plain(told | {"computes": [value(run) for study in battery() for run in study.runs]})
    if isinstance(value, FunctionType):
        return [_plain(value(run)) for study in battery() for run in study.runs]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    return value


def _short(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:16]


# all claims, in the order of the papers
CLAIMS: tuple[Claim, ...] = (*actre.CLAIMS, *epo.CLAIMS, *seal.CLAIMS, *aem.CLAIMS)
PAPERS = {
    "ActRe": "When Instinct Guides and Insight Grounds: Staged RL Training for LLM Agents",
    "EPO": "Exploring the Entropy Mechanism in On-Policy Optimization for LLM Agents",
    "SEAL": "Cyclical Entropy Eruption: Entropy Dynamics in Agent Reinforcement Learning",
    "AEM": "Adaptive Entropy Modulation for Multi-Turn Agentic Reinforcement Learning",
}


def claim_of(name: str) -> Claim:
    known = {claim.id: claim for claim in CLAIMS}
    if name.upper() not in known:
        raise ConfigError(f"no claim is called {name!r:.40}{did_you_mean(name.upper(), known)}")
    return known[name.upper()]


FILE = Path(__file__).with_name("rules.json")


@dataclass(frozen=True)
class Entry:
    digest: str
    date: str  # UTC, as 2026-11-15T17:00:00Z
    why: str


Book = Mapping[str, Sequence[Entry]]


def read_book(path: Path = FILE) -> dict[str, list[Entry]]:
    if not path.exists():
        return {}
    table = json.loads(path.read_text(encoding="utf-8"))
    return {name: [Entry(**entry) for entry in entries] for name, entries in table.items()}


@cache
def present() -> Mapping[str, str]:
    """The digests as the code is now: claims by their id, and what makes verdicts of findings."""
    return {claim.id: digest_of(claim) for claim in CLAIMS} | {DECISION: digest_of_decision()}


def unrecorded(book: Book, now: Mapping[str, str]) -> list[str]:
    """What differs from its last entry, or has none."""
    return [name for name, digest in now.items() if not book.get(name) or book[name][-1].digest != digest]


def with_changes(book: Book, now: Mapping[str, str], date: str, why: str) -> dict[str, list[Entry]]:
    found = {name: list(entries) for name, entries in book.items()}
    for name in unrecorded(book, now):
        found.setdefault(name, []).append(Entry(now[name], date, why))
    return found


def notes_on(claim: Claim, book: Book, now: Mapping[str, str], made: Sequence[str]) -> tuple[str, ...]:
    """What a reader must know: changes since the first of the runs was made, and changes without an entry."""
    notes: list[str] = []
    for name in (claim.id, DECISION):
        what = "the rule" if name == claim.id else "the way all verdicts are made"
        entries = book.get(name, ())
        if not entries or entries[-1].digest != now[name]:
            notes.append(f"{what} differs from its last entry in rules.json")
        first = min((date for date in made if date), default="")
        late = [entry for entry in entries if first and entry.date > first]
        if late:
            verbs = ["was made on" if entry is entries[0] else "was changed on" for entry in late]
            told = [f"{verb} {entry.date} ({entry.why})" for verb, entry in zip(verbs, late, strict=True)]
            notes.append(f"{what} {' and '.join(told)}, after runs of {first}")
    if made and not all(made):
        notes.append("it is not known when some of the runs were made")
    return tuple(notes)


def write_book(book: Book, path: Path = FILE) -> None:
    table = {name: [asdict(entry) for entry in entries] for name, entries in book.items()}
    write_atomically(path, (json.dumps(table, indent=1, ensure_ascii=False) + "\n").encode())


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not arguments[0].strip():
        print('say why: python -m isentrope.papers.registry "why the rules changed"')
        return 2
    book, now = read_book(), present()
    changed = unrecorded(book, now)
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    write_book(with_changes(book, now, date, arguments[0].strip()))
    print(f"recorded: {', '.join(changed) or 'nothing had changed'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
