"""Any Hugging Face causal language model from a local folder, behind the same two calls as our own model.

Rows of conversations share the columns of one cache; what a row does not use is masked out ("holes"). That needs
nothing of the model but positions and an attention mask, so it works for every architecture with full attention.
"""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from isentrope.errors import EngineError, writing


class HoledCache:
    def __init__(self, rows: int, device: torch.device) -> None:
        from transformers import DynamicCache

        self.past: Any = DynamicCache()
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.used = torch.zeros(rows, 0, dtype=torch.bool, device=device)

    def keep(self, rows: Tensor) -> None:
        self.lengths, self.used = self.lengths[rows], self.used[rows]
        if self.past.get_seq_length():
            self.past.batch_select_indices(rows)


class HuggingFaceModel(nn.Module):
    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm
        self.decoder: Any = lm.get_decoder()
        _check_supported(lm)

    @classmethod
    def load(cls, folder: Path) -> HuggingFaceModel:
        try:
            from transformers import AutoModelForCausalLM
        except ImportError as error:
            raise EngineError("Hugging Face models need transformers: pip install 'isentrope[hf]'") from error
        try:
            lm: Any = AutoModelForCausalLM.from_pretrained(
                folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise EngineError(f"cannot load a causal language model from {folder}: {error}") from error
        return cls(lm)

    def head_weight(self) -> Tensor:
        return self.lm.get_output_embeddings().weight

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor) -> Tensor:
        columns = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        seen = (segments_BT[:, :, None] == segments_BT[:, None, :]) & (columns[None, :, None] >= columns[None, None, :])
        out = self.decoder(
            input_ids=ids_BT, position_ids=positions_BT, attention_mask=self._additive(seen), use_cache=False
        )
        return out.last_hidden_state

    def new_cache(self, rows: int) -> HoledCache:
        return HoledCache(rows, self.head_weight().device)

    def extend(self, cache: HoledCache, ids_RT: Tensor, counts_R: Tensor, rows: Tensor | None = None) -> Tensor:
        device, total = ids_RT.device, len(cache.lengths)
        where = torch.arange(total, device=device) if rows is None else rows
        width = ids_RT.shape[1]
        ids = torch.zeros(total, width, dtype=torch.long, device=device)
        counts = torch.zeros(total, dtype=torch.long, device=device)
        ids[where], counts[where] = ids_RT, counts_R
        cache.used[cache.lengths == 0] = False  # a conversation that begins again sees nothing of its past
        new = torch.arange(width, device=device)
        cache.used = torch.cat([cache.used, new[None] < counts[:, None]], dim=1)
        past = cache.used.shape[1] - width
        keys = torch.arange(past + width, device=device)
        here = past + new
        # A hole sees itself, so that no query is left without a key: its NaN would reach every later token.
        seen = (cache.used[:, None, :] & (keys[None, None] <= here[None, :, None])) | (keys[None] == here[:, None])[
            None
        ]
        out = self.decoder(
            input_ids=ids,
            position_ids=cache.lengths[:, None] + new,
            attention_mask=self._additive(seen),
            past_key_values=cache.past,
            use_cache=True,
        )
        cache.lengths = cache.lengths + counts
        return out.last_hidden_state[where, counts_R - 1]

    def _additive(self, seen_BTS: Tensor) -> Tensor:
        dtype = (
            torch.get_autocast_dtype(seen_BTS.device.type)
            if torch.is_autocast_enabled(seen_BTS.device.type)
            else torch.float32
        )
        lowest = torch.finfo(dtype).min
        return torch.zeros(seen_BTS.shape, dtype=dtype, device=seen_BTS.device).masked_fill(~seen_BTS, lowest)[:, None]

    def save(self, folder: Path) -> None:
        with writing(folder):
            try:
                self.lm.save_pretrained(folder, safe_serialization=True)
            except SafetensorError as error:  # how safetensors reports a full disk
                raise OSError(errno.ENOSPC, str(error)) from error


def _check_supported(lm: Any) -> None:
    config = lm.config
    if lm.get_output_embeddings() is None or getattr(lm.get_output_embeddings(), "bias", None) is not None:
        raise EngineError(f"{type(lm).__name__}: expected a language model head without bias")
    for name in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, name, None) not in (None, 1, 1.0):
            raise EngineError(f"{type(lm).__name__}: logits changed by {name} are not supported")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise EngineError(f"{type(lm).__name__}: layers of type {', '.join(sorted(kinds))}; only full attention works")
