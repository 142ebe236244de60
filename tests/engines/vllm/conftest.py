"""These tests need the real vLLM: `make test-vllm` makes an environment for it and runs them there."""

from __future__ import annotations

import importlib.util

import pytest

WITHOUT = "test_without_vllm"  # what is to happen where there is none


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = importlib.util.find_spec("vllm") is None
    for item in items:
        if "tests/engines/vllm/" in item.path.as_posix() and WITHOUT not in item.name:
            item.add_marker(pytest.mark.vllm)
            if missing:
                item.add_marker(pytest.mark.skip(reason="needs vLLM: make test-vllm"))
