"""How much of what is large a test looks at: a part in `make test`, all of it in `make explore`."""

from __future__ import annotations

import os

from hypothesis import settings

EXPLORE = bool(os.environ.get("ISENTROPE_EXPLORE"))


def examples(count: int) -> settings:
    """So many generated examples in `make test`, ten times as many in `make explore`: for those that take long."""
    return settings(max_examples=10 * count if EXPLORE else count)
