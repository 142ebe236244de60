"""How things are told to the agent: numbered lines, test runs, and nothing longer than it may be."""

from __future__ import annotations

from isentrope.tasks.code_repair.grade import summary
from isentrope.tasks.code_repair.running import TestRun, printable

FAILURES = 3  # failing tests told in full
_STOPPED = {
    "time": "it took too long",
    "memory": "it took too much memory",
    "output": "it printed too much",
    "files": "it made too many files",
}


def lines_of(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def numbered(lines: list[str], first: int, last: int) -> str:
    width = len(str(last))
    return "\n".join(f"{number:>{width}}  {lines[number - 1]}" for number in range(first, last + 1))


def shown(text: str) -> str:
    """The agent's own words, short enough and clean enough to be told to it again."""
    return clipped(printable(" ".join(text[:1000].split())), 80)


def clipped(text: str, most: int) -> str:
    """At most so many characters: the middle is left out, and it says so."""
    if len(text) <= most:
        return text
    note = f"\n... {len(text) - most} characters left out ...\n" if most > 200 else "..."
    head = (most - len(note)) * 3 // 5
    return text[:head] + note + text[len(text) - (most - len(note) - head) :]


def told(run: TestRun) -> str:
    """A test run in words: how many, which failed, and why the first few did."""
    lines = [f"Tests: {summary(run)}."]
    if not run.complete:
        lines.append(f"The run was stopped: {_STOPPED.get(run.ended, 'the code under test ended it')}.")
    failures = [*run.broken, *run.failures]
    for failure in failures[:FAILURES]:
        lines.append(f"\nFAILED {failure.test}\n{clipped(failure.text.strip(), 1200)}")
    if len(failures) > FAILURES:
        lines.append("\nAlso failed:\n" + "\n".join(failure.test for failure in failures[FAILURES:][:20]))
    return "\n".join(lines)
