"""Shapes without torch: their weights are those of transformers' models, and so are the facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from isentrope.models.sources.catalogue import facts_of
from isentrope.models.sources.shapes import SHAPES

transformers = pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")


@pytest.mark.parametrize("name", ["tiny", "qwen3-0.6b", "llama3-1b"])
def test_weights_and_facts_are_those_of_the_model(name: str) -> None:
    import torch

    shape = SHAPES[name]
    config = shape.config()
    with torch.device("meta"):
        model: Any = getattr(transformers, shape.architecture)(config)
    weights = {name: tuple(one.shape) for name, one in model.named_parameters()}
    assert weights == shape.weights()
    assert replace(facts_of(config.to_dict(), weights), chat_template=True) == shape.facts()
