"""What an agent can say, and how it is understood. Nothing of it ever reaches a shell."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

VERBS = ("ls", "view", "search", "edit", "insert", "replace", "undo", "run tests", "submit")

RULES = (
    "You repair a Python package that has a bug: some of its tests fail. Look around, find the bug, correct it, run "
    "the tests, and submit. Tests and configuration files cannot be changed. An action is one of these, the words in "
    "capitals replaced by yours:\n"
    "ls FOLDER\n"
    "view FILE FROM-TO (lines by number, e.g. view bank/money.py 10-30; without numbers, from the top)\n"
    "search TEXT (every line that holds it; search TEXT in PATH looks there only)\n"
    "edit FILE FROM-TO and, on the lines below, what to put in place of those lines (nothing: they are deleted)\n"
    "insert FILE LINE and, on the lines below, what to put after that line\n"
    "replace FILE and, on the lines below, the old lines, a line ====, and the new lines\n"
    "undo FILE (takes back your changes to it)\n"
    "run tests (all; run tests FILE or run tests FILE::NAME runs some)\n"
    "submit (ends the task; the repair counts if all tests pass)\n"
    "Keep the blanks at the beginning of code lines."
)

FORMS = {
    "ls": "ls FOLDER, or ls alone",
    "view": "view FILE, or view FILE FROM-TO, e.g. view bank/money.py 10-30",
    "search": "search TEXT, or search TEXT in PATH",
    "edit": "edit FILE FROM-TO on the first line, the new lines below it",
    "insert": "insert FILE LINE on the first line, the lines to insert below it",
    "replace": "replace FILE on the first line, then the old lines, a line ====, and the new lines",
    "undo": "undo FILE",
    "run tests": "run tests, or run tests FILE, or run tests FILE::NAME",
    "submit": "submit",
}
SEPARATOR = "===="
_RANGE = re.compile(r"(\d{1,7})(?:\s*-\s*(\d{1,7}))?", re.ASCII)


class Misunderstood(Exception):
    """The action cannot be carried out; the text tells the agent what would."""


@dataclass(frozen=True)
class Action:
    verb: str
    words: str  # what follows the verb on the first line
    body: str | None  # the lines below; None if there are none


def parse_action(text: str) -> Action:
    text = text.encode("utf-8", "replace").decode("utf-8").replace("\r\n", "\n")  # no half characters
    text = text.strip("\n")
    if "\n" not in text and text.lstrip().lower().startswith(("edit ", "insert ", "replace ")):
        text = text.replace("\\n", "\n")  # typed on one line: by a person in `play`, or by a model that escapes
    first, newline, body = text.partition("\n")
    words = first.split()
    verb = words[0].lower() if words else ""
    if verb in ("run", "test", "pytest"):
        if verb == "run" and [word.lower() for word in words[1:2]] not in (["tests"], ["test"]):
            raise Misunderstood(f"Only tests can be run: {FORMS['run tests']}.")
        rest = words[2:] if verb == "run" else words[1:]
        return Action("run tests", " ".join(rest), body if newline else None)
    if verb not in VERBS:
        close = get_close_matches(verb[:20], VERBS, 1, 0.7)
        hint = f" Did you mean {close[0]}: {FORMS[close[0]]}?" if close else ""
        raise Misunderstood(f"There is no such action. There are: {', '.join(VERBS)}.{hint}")
    return Action(verb, first.strip()[len(verb) :].strip(), body if newline else None)


def file_and_lines(
    verb: str, words: str, known: Callable[[str], bool] = lambda name: False
) -> tuple[str, int | None, int | None]:
    """FILE, FILE N or FILE N-M. A blank may be in the name of a file that is known."""
    file, _, rest = words.partition(" ")
    for end in [match.start() for match in re.finditer(" ", words)] + [len(words)]:
        if " " in words[:end].rstrip() and known(words[:end].rstrip()):
            file, rest = words[:end].rstrip(), words[end:]
    rest = rest.strip().removeprefix("lines ").removeprefix("line ").replace(":", "-").replace(",", "-")
    if not file:
        raise Misunderstood(f"Which file? {FORMS[verb]}.")
    if not rest:
        return file, None, None
    match = _RANGE.fullmatch(rest)
    if match is None:
        raise Misunderstood(f"Line numbers look like 12 or 10-20. The form is: {FORMS[verb]}.")
    return file, int(match[1]), int(match[2]) if match[2] else None


def old_and_new(body: str | None) -> tuple[str, str]:
    """The two parts of a replacement."""
    lines = (body or "").split("\n")
    marks = [place for place, line in enumerate(lines) if line.strip() == SEPARATOR]
    if len(marks) != 1:
        raise Misunderstood(f"There must be one line {SEPARATOR} between old and new lines. {FORMS['replace']}.")
    return "\n".join(lines[: marks[0]]), "\n".join(lines[marks[0] + 1 :])
