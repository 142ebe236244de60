"""Runs any Hugging Face causal language model from a local folder, with the same calls as our own model.

All that is asked of the model is to take positions, an attention mask and a cache (`kv_cache.Cache`), so every
architecture with full attention works.
"""

from __future__ import annotations

import errno
import json
import math
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from torch import Tensor, nn

from isentrope.core.errors import ConfigError, EngineError, writing
from isentrope.models.kv_cache import Cache, real_tokens, seen_BTT
from isentrope.models.sources.cache import library, quiet_transformers
from isentrope.models.sources.catalogue import INDEX, check_sizes, read_config, unsupported, weight_files
from isentrope.models.sources.small_files import MODEL_FILES, laid_out, read_small
from isentrope.models.trial import model_trial, try_all

ATTENTION = "isentrope"
"""The name under which `grouped_attention` is known to transformers."""


def grouped_attention(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Attention over a cache in which heads that share keys stand side by side in the query dimension: keys are read
    once and never copied. Whole rows, as in training, go to transformers' own attention."""
    from transformers.integrations import sdpa_attention

    (rows, heads, new, size), shared = query.shape, key.shape[1]
    if new == key.shape[2] or attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention.sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    share = heads // shared
    mask = attention_mask.repeat(1, 1, share, 1) if share > 1 else attention_mask
    together = query.reshape(rows, shared, share * new, size)
    out = F.scaled_dot_product_attention(together, key, value, attn_mask=mask, scale=options.get("scaling"))
    return out.reshape(rows, heads, new, -1).transpose(1, 2), None


def register_attention() -> str:
    """Make the attention known to transformers; gives its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask  # pyright: ignore[reportUnknownVariableType]

    AttentionInterface.register(ATTENTION, grouped_attention)
    AttentionMaskInterface.register(ATTENTION, sdpa_mask)
    return ATTENTION


class HuggingFaceModel(nn.Module):
    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm
        self.decoder: Any = lm.get_decoder()
        self.computes_twice, self._layers = False, list[nn.Module]()  # those that compute twice
        head = lm.get_output_embeddings()
        if head is None or getattr(head, "bias", None) is not None:
            raise EngineError(f"{type(lm).__name__}: expected a language model head without bias")
        if reason := unsupported(lm.config.to_dict()):  # once more, with the values that config.json left out
            raise EngineError(reason)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In a process of its own, which has loaded no model."""
        register_attention()
        super().__setstate__(state)

    @classmethod
    def load(cls, folder: Path) -> HuggingFaceModel:
        kind = library("transformers", "Hugging Face models").AutoModelForCausalLM
        files, weights = read_small(folder, MODEL_FILES), weight_files(folder)
        shapes = {name: shape for some in weights.values() for name, shape in some.items()}
        check_sizes(folder, read_config(folder), shapes)
        try_all(folder, model_trial(files, sum(math.prod(shape) for shape in shapes.values())))
        if len(weights) > 1:
            table = {name: file.name for file, some in weights.items() for name in some}
            files[INDEX] = json.dumps({"metadata": {}, "weight_map": table}).encode()
        # in the folder's own precision, so that no more memory is taken than its own size
        how = {"dtype": "auto", "attn_implementation": register_attention(), "output_loading_info": True}
        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        try:
            with quiet_transformers(), laid_out(files, {file.name: file for file in weights}) as place:
                lm, report = kind.from_pretrained(place, **how, **safe)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # settings and weights that do not fit may end anywhere in the reader
            told = " ".join(str(error).split())[:500]
            raise EngineError(f"cannot load a causal language model from {folder}: {told}") from error
        lm.name_or_path = lm.config.name_or_path = str(folder)
        missing: list[str] = sorted(report["missing_keys"])
        if missing:  # transformers would fill them with random numbers and say so in passing
            raise EngineError(
                f"{folder} lacks {len(missing)} of the tensors that its config.json asks for, such as {missing[0]}; "
                "the folder is incomplete, or its tensors have other names"
            )
        settings = lm.generation_config
        if settings is not None and (settings.temperature or settings.top_p or settings.top_k):
            settings.do_sample = True  # else transformers refuses to save them
        return cls(lm)

    def head_weight(self) -> Tensor:
        return self.lm.get_output_embeddings().weight

    def hidden(
        self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor, parents_BT: Tensor | None = None
    ) -> Tensor:
        columns = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        if parents_BT is None and _one_sequence_each(positions_BT, segments_BT, columns):
            # Causal attention without a mask, which is quicker: padding stands last and is seen by padding alone.
            mask, positions_BT = None, columns[None].expand_as(positions_BT)
        else:
            mask = self._additive(seen_BTT(segments_BT, parents_BT))
        # transformers keeps no activations in a layer that is in training mode; here that is on only while a gradient
        # is wanted, and only for the layer itself: dropout inside of it stays off, and sampling keeps its cache.
        self._train_layers(torch.is_grad_enabled())
        try:
            return self._decoded(ids_BT, positions_BT, mask, use_cache=False)
        finally:
            self._train_layers(False)

    def _train_layers(self, wanted: bool) -> None:
        for layer in self._layers:
            layer.training = wanted

    def _decoded(self, ids: Tensor, positions: Tensor, mask: Tensor | None, **cache: Any) -> Tensor:
        return self.decoder(input_ids=ids, position_ids=positions, attention_mask=mask, **cache).last_hidden_state

    def compute_twice(self) -> None:
        from transformers.modeling_layers import GradientCheckpointingLayer

        self._layers = [layer for layer in self.decoder.modules() if isinstance(layer, GradientCheckpointingLayer)]
        if not self._layers:
            raise ConfigError(
                f"learn.gradient_checkpointing: transformers cannot do it for {type(self.lm).__name__}; set it to false"
            )
        self.computes_twice = True
        self.lm.gradient_checkpointing_enable({"use_reentrant": False})
        for layer in self._layers:  # a layer's own dropout would act with the flag below; its children's does not
            for name, value in vars(layer).items():
                if "drop" in name and isinstance(value, float):
                    setattr(layer, name, 0.0)

    def extend(
        self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None = None, seen: int | None = None
    ) -> Tensor:
        """As `Llama.extend`."""
        positions, mask = cache.begin(ids_RT.shape[1], rows, seen)
        return cache.end(
            self._decoded(ids_RT, positions, mask[:, None], past_key_values=cache, use_cache=True), counts_R
        )

    def extend_all(self, cache: Cache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None, seen: int) -> Tensor:
        """As `Llama.extend_all`, padding computed too."""
        positions, mask = cache.begin(ids_RT.shape[1], rows, seen)
        states = self._decoded(ids_RT, positions, mask[:, None], past_key_values=cache, use_cache=True)
        cache.grow(counts_R)
        return states.flatten(0, 1)[real_tokens(ids_RT, counts_R)]

    def _additive(self, seen_BTS: Tensor) -> Tensor:
        kind = seen_BTS.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else self.head_weight().dtype
        lowest = torch.finfo(dtype).min
        return torch.zeros(seen_BTS.shape, dtype=dtype, device=seen_BTS.device).masked_fill(~seen_BTS, lowest)[:, None]

    def save(self, folder: Path) -> None:
        with writing(folder), quiet_transformers():
            try:
                self.lm.save_pretrained(folder, safe_serialization=True)
            except SafetensorError as error:  # how safetensors reports a full disk
                raise OSError(errno.ENOSPC, str(error)) from error


def _one_sequence_each(positions_BT: Tensor, segments_BT: Tensor, columns: Tensor) -> bool:
    """Whether every row holds one sequence from its start, and then nothing but padding."""
    same = (segments_BT == segments_BT[:, :1]) & (positions_BT == columns)
    return bool((same | (segments_BT == -1)).all())
