"""Carries out an agent's actions: look at the files, change them, run the tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from isentrope.sandbox.base import Item, Sandbox, clean_path
from isentrope.worlds.code_repair.grade import files_with_tests, is_protected, is_test
from isentrope.worlds.code_repair.running import TestRun, printable, run_tests

# what is shown to the agent: numbered lines, test runs, and nothing longer than it may be

FAILURES = 3  # failing tests told in full
_STOPPED = {
    "time": "it took too long", "memory": "it took too much memory", "output": "it printed too much",
    "files": "it made too many files",
}  # fmt: skip


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
    counts = {word: sum(value == word for value in run.outcomes.values()) for word in ("passed", "failed", "skipped")}
    words = [f"{count} {word}" for word, count in counts.items() if count or word == "passed"]
    words += [f"{len(run.broken)} files could not be loaded"] if run.broken else []
    lines = [f"Tests: {', '.join(words)}."]
    if not run.complete:
        lines.append(f"The run was stopped: {_STOPPED.get(run.ended, 'the code under test ended it')}.")
    failures = [*run.broken.items(), *run.failures.items()]
    for test, text in failures[:FAILURES]:
        lines.append(f"\nFAILED {test}\n{clipped(text.strip(), 1200)}")
    if len(failures) > FAILURES:
        lines.append("\nAlso failed:\n" + "\n".join(test for test, _ in failures[FAILURES:][:20]))
    return "\n".join(lines)


# actions, and how they are parsed; nothing of them ever reaches a shell

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
VERBS = tuple(FORMS)
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


PAGE = 100  # lines of a file shown at once
HITS = 40  # lines found at once
LARGEST = 1 << 20  # bytes of a file that may be edited
MOST_TEST_FILES = 200  # run at once when none is named
AROUND = 3  # lines shown before and after an edit


class Workbench:
    """One agent's view of one package. Every answer is at most `most` characters long."""

    def __init__(
        self, sandbox: Sandbox, files: Mapping[str, Item], most: int = 4000, new_files: bool = False,
        run: Callable[[Sandbox, list[str]], TestRun] = run_tests,
    ) -> None:  # fmt: skip
        self._sandbox, self._files, self._most = sandbox, files, most
        self._new_files, self._run = new_files, run
        self._texts: dict[str, str] = {}  # of changed files

    def do(self, action: Action) -> str:
        """The answer to an action; Misunderstood if it cannot be carried out."""
        does = {
            "ls": self._ls, "view": self._view, "search": self._search, "edit": self._edit, "insert": self._insert,
            "replace": self._replace, "undo": self._undo, "run tests": self._run_tests,
        }  # fmt: skip
        return clipped(printable(does[action.verb](action)), self._most)

    def _paths(self) -> list[str]:
        return sorted({*self._files, *self._texts})

    def _ls(self, action: Action) -> str:
        folder = self._inside(action.words or ".")
        below = f"{folder}/" if folder else ""
        rest = [path.removeprefix(below) for path in self._paths() if path.startswith(below)]
        if not rest:
            raise Misunderstood(f"There is no folder {shown(action.words)}.{self._similar(folder)}")
        folders = sorted({path.partition("/")[0] + "/" for path in rest if "/" in path})
        return "\n".join(folders + [path for path in rest if "/" not in path])

    def _view(self, action: Action) -> str:
        name, first, last = self._file_and_lines(action)
        path, text = self._text_of(name)
        lines = lines_of(text)
        start = max(1, first or 1)
        end = min(len(lines), start + PAGE - 1, start + PAGE - 1 if last is None else max(start, last))
        if start > len(lines):
            raise Misunderstood(f"{path} has {len(lines)} lines.")
        note = f" of {len(lines)}" if end - start + 1 < len(lines) else ""
        return f"{path}, lines {start}-{end}{note}:\n{numbered(lines, start, end)}"

    def _search(self, action: Action) -> str:
        text, paths = self._what_and_where(action.words)
        if not text:
            raise Misunderstood(f"Search for what? {FORMS['search']}.")
        hits = [
            f"{path}:{number}: {line.strip()[:160]}"
            for path in paths
            if (content := self._readable(path)) is not None and text in content
            for number, line in enumerate(lines_of(content), start=1)
            if text in line
        ]
        if not hits:
            return f"No line holds {shown(text)}. Upper and lower case matter."
        more = f"\n({len(hits) - HITS} more lines; search for something rarer)" if len(hits) > HITS else ""
        return "\n".join(hits[:HITS]) + more

    def _what_and_where(self, words: str) -> tuple[str, list[str]]:
        """`TEXT in PATH`, if there is such a path; otherwise all the words are the text."""
        text, _, place = words.rpartition(" in ")
        folder = clean_path(place.strip(), self._sandbox.work) if text else None
        below = [path for path in self._paths() if folder is not None and (path + "/").startswith(f"{folder}/")]
        text, paths = (text, below) if below else (words, self._paths())
        if len(text) > 2 and text[0] == text[-1] and text[0] in "\"'`":
            text = text[1:-1]
        return text, paths

    def _edit(self, action: Action) -> str:
        name, first, last = self._file_and_lines(action)
        if first is None:
            raise Misunderstood(f"Which lines? {FORMS['edit']}.")
        last = first if last is None else last
        path, text = self._editable(name)
        lines = lines_of(text)
        if not 1 <= first <= last <= len(lines):
            raise Misunderstood(f"{path} has lines 1-{len(lines)}; {first}-{last} is not a part of them.")
        new = action.body.split("\n") if action.body is not None else []
        return self._change(path, text, [*lines[: first - 1], *new, *lines[last:]], first, len(new))

    def _insert(self, action: Action) -> str:
        name, after, _ = self._file_and_lines(action)
        if after is None or not action.body:
            raise Misunderstood(f"Insert what, and after which line? {FORMS['insert']}.")
        path, text = self._editable(name, may_be_new=self._new_files)
        lines = lines_of(text)
        if after > len(lines):
            raise Misunderstood(f"{path} has {len(lines)} lines.")
        new = action.body.split("\n")
        return self._change(path, text, [*lines[:after], *new, *lines[after:]], after + 1, len(new))

    def _replace(self, action: Action) -> str:
        name, _, _ = self._file_and_lines(action)
        given = (action.body or "").split("\n")
        marks = [place for place, line in enumerate(given) if line.strip() == SEPARATOR]
        if len(marks) != 1:
            raise Misunderstood(f"There must be one line {SEPARATOR} between old and new lines. {FORMS['replace']}.")
        old, new = "\n".join(given[: marks[0]]), "\n".join(given[marks[0] + 1 :])
        path, text = self._editable(name)
        joined = "\n".join(lines_of(text))
        places = [match.start() for match in re.finditer(re.escape(old), joined)] if old.strip() else []
        if not places:
            raise Misunderstood(f"{path} does not hold those old lines. They must be exactly as view shows them.")
        if len(places) > 1:
            raise Misunderstood(f"{path} holds those old lines {len(places)} times. Add a line above or below.")
        changed = joined[: places[0]] + new + joined[places[0] + len(old) :]
        return self._change(path, text, changed.split("\n"), joined.count("\n", 0, places[0]) + 1, new.count("\n") + 1)

    def _undo(self, action: Action) -> str:
        path = self._inside(action.words)
        if path not in self._texts:
            raise Misunderstood(f"You have not changed {shown(action.words) or 'that file'}.")
        del self._texts[path]
        self._sandbox.tree.restore(path)
        return f"{path} is as it was." if path in self._files else f"{path} is gone again."

    def _run_tests(self, action: Action) -> str:
        target = action.words
        path = self._inside(target.partition("::")[0]) if target else ""
        targets = files_with_tests(self._paths())
        if target:
            if not any(one == path or one.startswith(f"{path}/") for one in self._paths()):
                raise Misunderstood(f"There is no test file {shown(path)}.{self._similar(path)}")
            targets = [path + target[len(target.partition("::")[0]) :]]
        if not targets or len(targets) > MOST_TEST_FILES:
            raise Misunderstood("Say which tests: run tests FILE.")
        return told(self._run(self._sandbox, targets))

    def _file_and_lines(self, action: Action) -> tuple[str, int | None, int | None]:
        """FILE, FILE N or FILE N-M. A blank may be in the name of a file that is there."""
        words = action.words
        file, _, rest = words.partition(" ")
        for end in [match.start() for match in re.finditer(" ", words)] + [len(words)]:
            name = words[:end].rstrip()
            if " " in name and clean_path(name, self._sandbox.work) in {*self._files, *self._texts}:
                file, rest = name, words[end:]
        rest = rest.strip().removeprefix("lines ").removeprefix("line ").replace(":", "-").replace(",", "-")
        if not file:
            raise Misunderstood(f"Which file? {FORMS[action.verb]}.")
        if not rest:
            return file, None, None
        match = _RANGE.fullmatch(rest)
        if match is None:
            raise Misunderstood(f"Line numbers look like 12 or 10-20. The form is: {FORMS[action.verb]}.")
        return file, int(match[1]), int(match[2]) if match[2] else None

    def _inside(self, name: str) -> str:
        path = clean_path(name.strip(), self._sandbox.work)
        if path is None:
            raise Misunderstood(f"{shown(name)} is not in the package. Paths look like those that ls shows.")
        return path

    def _readable(self, path: str) -> str | None:
        if path in self._texts:
            return self._texts[path]
        item = self._files.get(path)
        if item is None or item.link or b"\0" in item.data or len(item.data) > LARGEST:
            return None
        return item.data.decode("utf-8", "surrogateescape")

    def _text_of(self, name: str) -> tuple[str, str]:
        path = self._inside(name)
        text = self._readable(path)
        if text is None:
            why = "is not a text file" if path in self._files else "does not exist"
            raise Misunderstood(f"{shown(path)} {why}.{self._similar(path)}")
        return path, text

    def _editable(self, name: str, may_be_new: bool = False) -> tuple[str, str]:
        path = self._inside(name)
        if path and is_protected(path):
            what = "a test" if is_test(path) else "a file that steers how tests are run"
            raise Misunderstood(f"{shown(path)} is {what}: it stays as it is. Repair the code that the tests call.")
        if may_be_new and path and path not in self._paths():
            return path, ""
        return self._text_of(name)

    def _change(self, path: str, before: str, lines: list[str], first: int, count: int) -> str:
        ending = "\r\n" if "\r\n" in before else "\n"
        text = ending.join(lines) + (ending if lines and (before.endswith("\n") or not before) else "")
        data = text.encode("utf-8", "surrogateescape")
        if len(data) > LARGEST:
            raise Misunderstood(f"{path} would have more than {LARGEST >> 20} MB.")
        self._sandbox.tree.write(path, data)
        self._texts[path] = data.decode("utf-8", "surrogateescape")
        start, end = max(1, first - AROUND), min(len(lines), first + count - 1 + AROUND)
        part = f" Lines {start}-{end} now:\n{numbered(lines, start, end)}" if end >= start else ""
        return f"{path} is changed.{part}"

    def _similar(self, path: str) -> str:
        name = path.rpartition("/")[2]
        same = [one for one in self._paths() if name and one.rpartition("/")[2] == name]
        return f" Did you mean {same[0]}?" if same else " ls shows what there is."
