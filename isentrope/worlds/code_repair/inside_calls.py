"""Makes the calls inside the box and tells what they returned. The file is copied into it, and `plain.py` beside it.

Nothing here is trusted: the package's code runs in the same process and may send whatever it likes. It gains nothing by
that, since no expected value is in the box: what it sends has to be what the repaired package would return.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from runpy import run_path
from typing import Any

MOST_SEEN = 1000  # values told of one probe
MOST_SLOW = 3  # probes of one test that may take too long; others of it are not tried then


class Slow(BaseException):
    """The probe takes too long."""


class Probe:
    """One run of one test with certain constants: what it saw, in order."""

    def __init__(self, plain: dict[str, Any], constants: list[Any]) -> None:
        self._to_plain, self._from_plain, self._constants = plain["to_plain"], plain["from_plain"], constants
        self.seen: list[Any] = []

    def constant(self, number: int) -> Any:
        return self._from_plain(self._constants[number])

    def see(self, value: Any) -> Any:
        if len(self.seen) < MOST_SEEN:
            self.seen.append(self._to_plain(value))
        return value

    def true(self, value: Any) -> Any:
        self.see(value)
        if type(value) is not bool:
            self.see(bool(value))
        return value

    def raises(self, kinds: Any, pattern: Any = None) -> Any:
        return Raises(self, kinds, pattern)


class Raises:
    """Stands for pytest.raises: whether such an exception came, and its text where the test looks at it."""

    def __init__(self, probe: Probe, kinds: Any, pattern: Any) -> None:
        self._probe, self._kinds, self._pattern = probe, kinds, pattern
        self.value = self.exception = None

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        self.value = self.exception = value
        expected = kind is not None and issubclass(kind, self._kinds)
        text = None
        if expected and self._pattern is not None:
            text = str(value) if re.search(self._pattern, str(value)) else ""
        name = None if kind is None or expected else kind.__qualname__
        self._probe.seen.append(["raised", expected, name, text])
        return kind is None or issubclass(kind, Exception)


def main() -> None:
    with open("/box/plan.json", encoding="utf-8") as file:
        plan: dict[str, Any] = json.load(file)
    os.remove("/box/plan.json")
    plain: dict[str, Any] = run_path("/box/plain.py")
    channel = os.dup(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    sys.path[:0] = plan["paths"]
    signal.signal(signal.SIGPROF, _late)
    codes = [compile(module["source"], f"<{module['name']}>", "exec") for module in plan["modules"]]
    slow: dict[tuple[int, int], int] = {}
    for number, module, case, changes in plan["probes"]:
        constants = list(plan["modules"][module]["constants"])
        for place, tree in changes:
            constants[place] = tree
        seconds = plan["seconds"] if changes else plan["shown"]
        said: dict[str, Any] = {"seen": [], "error": "Slow"}
        if not changes or slow.get((module, case), 0) < MOST_SLOW:
            said = _probed(codes[module], int(case), Probe(plain, constants), seconds)
            if said["error"] == "Slow":
                slow[module, case] = slow.get((module, case), 0) + 1
        _send(channel, {"probe": number, **said})
        if sum(slow.values()) >= plan["patience"]:
            break
    os._exit(0)


def _probed(code: Any, case: int, probe: Probe, seconds: float) -> dict[str, Any]:
    names: dict[str, Any] = {
        "__name__": "calls", "_constant": probe.constant, "_see": probe.see, "_true": probe.true,
        "_raises": probe.raises,
    }  # fmt: skip
    error = None
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            exec(code, names)
            names[f"_case_{case}"]()
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except BaseException as raised:
        error = type(raised).__name__
    return {"seen": probe.seen, "error": error}


def _late(number: int, frame: Any) -> None:
    raise Slow


def _send(channel: int, said: dict[str, Any]) -> None:
    data = (json.dumps(said) + "\n").encode("ascii")
    while data:
        data = data[os.write(channel, data) :]


if __name__ == "__main__":
    main()
