"""History of the second edition's rules: `rules.json`, beside this file, under version control.

    python -m isentrope.papers.registry "why"     # writes an entry for every rule that differs from its last one

A test fails while a rule differs from its last entry. Entries are only ever added: a rule that changed after runs it is
applied to were made is marked in the ledger, with the reason.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from isentrope.config.suggest import did_you_mean
from isentrope.core.errors import ConfigError
from isentrope.papers import actre, aem, epo, seal
from isentrope.papers.fingerprints import DECISION, digest_of, digest_of_decision
from isentrope.papers.record import Claim
from isentrope.runs.atomic import write_atomically

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
            told = " and ".join(f"{_verb(entries, entry)} {entry.date} ({entry.why})" for entry in late)
            notes.append(f"{what} {told}, after runs of {first}")
    if made and not all(made):
        notes.append("it is not known when some of the runs were made")
    return tuple(notes)


def _verb(entries: Sequence[Entry], entry: Entry) -> str:
    return "was made on" if entry is entries[0] else "was changed on"


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
