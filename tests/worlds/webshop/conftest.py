"""Catalogues that tests build do not go to the user's cache."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("webshop-cache"))


@pytest.fixture(autouse=True)
def _cache_of_the_tests(shared_cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ISENTROPE_CACHE", shared_cache)
