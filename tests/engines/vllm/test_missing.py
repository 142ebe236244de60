"""Without vLLM the engine says what is missing and where to read how it is installed."""

from __future__ import annotations

import importlib.util

import pytest

from isentrope.core.errors import EngineError
from isentrope.engines.registry import make_engine
from tests.engines.vllm.helpers import config_of
from tests.models.helpers import small_policy


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_error_says_how_to_get_it() -> None:
    with pytest.raises(EngineError, match="isentrope docs engines") as caught:
        make_engine(config_of(), small_policy())
    assert "engine.kind=torch" in str(caught.value)
