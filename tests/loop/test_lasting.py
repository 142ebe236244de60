"""The garbage collector leaves what was there before a run alone, and that alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator

import pytest

from isentrope.loop.session import lasting_objects


@pytest.fixture(autouse=True)
def by_hand() -> Generator[None]:
    """Nothing is collected but where a test says so."""
    gc.disable()
    yield
    gc.enable()


class Ring:
    def __init__(self) -> None:
        self.me = self


def test_new_garbage_is_collected_and_old_objects_are_left_alone() -> None:
    old = weakref.ref(Ring())  # garbage already, and not yet collected
    assert old() is not None
    with lasting_objects():
        assert gc.get_freeze_count() > 0
        new = weakref.ref(Ring())
        gc.collect()
        assert new() is None
        assert old() is not None
    gc.collect()
    assert old() is None


def test_it_ends_with_the_run_even_if_that_fails() -> None:
    with pytest.raises(RuntimeError), lasting_objects():
        raise RuntimeError
    assert gc.get_freeze_count() == 0
