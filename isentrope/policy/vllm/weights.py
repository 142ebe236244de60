"""A policy's weights as a checkpoint would hold them, straight from memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from isentrope.policy.llama import Llama
from isentrope.policy.lora.model import LoraModel, plain_weights
from isentrope.policy.policy import Backbone, Policy


def checkpoint_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Every weight under its Hugging Face name, adapters merged one matrix at a time, tied weights once."""
    inner, prefix = _inner(policy), ""
    root: Any = getattr(inner, "lm", None)
    if isinstance(inner, Llama):
        root, prefix = inner, "model."
    assert root is not None
    weights = plain_weights(root) if isinstance(policy.model, LoraModel) else root.named_parameters()
    for name, weight in cast("Iterator[tuple[str, Tensor]]", weights):
        yield prefix + name, weight.detach()


def write_shape(policy: Policy, folder: Path) -> None:
    """The model's config.json: all that an engine needs on disk if the weights come from memory."""
    inner = _inner(policy)
    if isinstance(inner, Llama):
        inner.save(folder)  # with its weights, which are small
    else:
        cast("Any", inner).lm.config.save_pretrained(folder)


def _inner(policy: Policy) -> Backbone:
    return policy.model.inner if isinstance(policy.model, LoraModel) else policy.model


def pack_tied_head(worker: Any) -> None:
    """Inside vLLM, after new weights: a head that shares the embedding's weights gets them too.

    On the CPU vLLM multiplies with packed copies; it renews those of the layers it loads, and a tied head is not one.
    """
    model = worker.get_model()
    head = getattr(model, "lm_head", None)
    if getattr(model.config, "tie_word_embeddings", False) and hasattr(head, "quant_method"):
        cast("Any", head).quant_method.process_weights_after_loading(head)
