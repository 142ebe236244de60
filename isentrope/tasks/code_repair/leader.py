"""The first process of a box. If it dies, the kernel ends all others in the box, whatever they have done to stay alive.

Bubblewrap asks the kernel to kill it when bubblewrap itself ends. Where the box's code runs under the same user id as
that first process, it might find a way to take that request back; so we kill the process ourselves as well.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from types import TracebackType

_CHILD = re.compile(rb'"child-pid": *([0-9]+)[^0-9]')


class Leader:
    """Learns from bubblewrap which process it is, and holds on to it, so that no other can be taken for it."""

    def __init__(self) -> None:
        self.news, self.told = os.pipe()  # bubblewrap writes to `told`
        self._heard = b""
        self._process = -1

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        for number in (self.news, self.told, self._process):
            if number >= 0:
                os.close(number)

    def read(self) -> bool:
        """There is news, perhaps not all of it yet; says whether the process is known now."""
        self._heard += os.read(self.news, 4096)
        found = _CHILD.search(self._heard)
        if found is None:
            return len(self._heard) > 4096  # that is no answer of bubblewrap's
        try:
            process = os.pidfd_open(int(found[1]))
        except OSError:
            return True  # it has ended already
        if _leads(int(found[1])):
            self._process = process
        else:
            os.close(process)
        return True

    def kill(self) -> None:
        if self._process >= 0:
            try:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _leads(pid: int) -> bool:
    """Whether it is process 1 of a namespace inside ours."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    numbers = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
    return any(len(one) > 1 and one[-1] == "1" for one in numbers)
