"""Starts vLLM: its arguments, what it must be able to do, and the error if it does not start."""

from __future__ import annotations

import importlib
import inspect
import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.config.convert import parse_choice
from isentrope.config.kinds import GpuOptions
from isentrope.config.schema import RunConfig
from isentrope.core.errors import EngineError
from isentrope.engines.vllm.draw import Board, processor_class
from isentrope.models.llama import Llama
from isentrope.models.lora.model import LoraModel, plain_weights
from isentrope.models.policy import Backbone, Policy


def checkpoint_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Every weight from memory under its Hugging Face name, adapters merged one matrix at a time, tied weights once."""
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


TESTED = "0.32.0"
PREFILL_TOKENS = 8192  # read in one step, at least
CPU_BLOCK = 32  # tokens per page on the CPU: vLLM's own 128 would recompute up to 127 tokens each turn

_SETTINGS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine shares memory with the trainer
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # whose logits processors cannot draw in step with the batch
}
_DEFAULTS = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the trainer computes on the same cores
}


def vllm_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "vllm":
            raise EngineError(
                'engine.kind = "vllm" needs vLLM, in a virtual environment of its own: docs/engines.md says how to '
                f"install it (missing here: {error.name}); or use engine.kind=torch"
            ) from error
        raise EngineError(f"vLLM cannot be loaded: {error}") from error


def _prepare_environment() -> None:
    """Before vLLM is imported: it reads these then."""
    os.environ.update(_SETTINGS)
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    # vLLM walks over torch's deprecated names while it loads; nobody here can do anything about it
    warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op.*", category=FutureWarning)


def start(policy: Policy, config: RunConfig, board: Board) -> Any:
    """vLLM's engine for the shape of this policy, its weights still random."""
    _prepare_environment()
    version = getattr(vllm_module("vllm"), "__version__", "unknown")
    runner = vllm_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
    if "weights_iterator" not in inspect.signature(runner.reload_weights).parameters:
        raise EngineError(f"vLLM {version} cannot take new weights from memory; version {TESTED} can")
    _must_fit(policy, vllm_module("vllm.platforms").current_platform.device_type)
    processor = processor_class(vllm_module("vllm.v1.sample.logits_processor").LogitsProcessor, board)
    with tempfile.TemporaryDirectory(prefix="isentrope-vllm-") as folder:
        write_shape(policy, Path(folder))
        arguments = vllm_module("vllm.engine.arg_utils").EngineArgs(
            model=folder, logits_processors=[processor], **_arguments(policy, config)
        )
        set_threads = torch.set_num_threads
        try:
            full = arguments.create_engine_config()
            if policy.device.type == "cpu":
                full.cache_config.kv_cache_memory_bytes = cache_bytes(full, config)
            return vllm_module("vllm.v1.engine.llm_engine").LLMEngine.from_vllm_config(full, disable_log_stats=True)
        except (ValueError, RuntimeError, torch.OutOfMemoryError) as error:
            raise EngineError(
                f"vLLM {version} (tested: {TESTED}) did not start: {error}. If memory is short, change engine.memory = "
                f"{memory_share(config)} or lower agent.max_context = {config.agent.max_context}"
            ) from error
        finally:
            torch.set_num_threads = set_threads  # on the CPU vLLM replaces it by a function that only warns


def memory_share(config: RunConfig) -> float:
    return parse_choice(GpuOptions, config.engine, "engine").memory


def _must_fit(policy: Policy, kind: str) -> None:
    """vLLM is built for one kind of device and takes the first one of it."""
    device = policy.device
    if device.type != kind:
        raise EngineError(f"the policy is on {device} but this vLLM was built for {kind}: set run.device={kind}")
    if device.index:
        raise EngineError(
            f"run.device = {device}: vLLM takes the first GPU; set CUDA_VISIBLE_DEVICES={device.index} and "
            "run.device=cuda"
        )


def cache_bytes(full: Any, config: RunConfig) -> int:
    """Room for a whole batch of longest conversations, at most the share of the memory that vLLM may take.

    On the CPU vLLM would fill all of that share with zeros, however small the model.
    """
    model, parallel = full.model_config, full.parallel_config
    heads = model.get_num_layers(parallel) * model.get_num_kv_heads(parallel)
    token = 2 * heads * model.get_head_size() * model.dtype.itemsize
    share = memory_share(config) * vllm_module("vllm.platforms").current_platform.get_device_total_memory()
    return int(min(token * config.rollout.batch * (config.agent.max_context + CPU_BLOCK), share))


def _arguments(policy: Policy, config: RunConfig) -> dict[str, Any]:
    on_cpu, length = policy.device.type == "cpu", config.agent.max_context
    arguments: dict[str, Any] = {
        "load_format": "dummy",  # the weights come from memory
        "skip_tokenizer_init": True,  # tokens go in and come out
        "generation_config": "vllm",
        "dtype": str(policy.dtype).removeprefix("torch."),
        "hf_overrides": {"head_dtype": "float32"},  # logits as the trainer makes them, whatever the layers compute in
        "max_model_len": length,
        "max_num_seqs": config.rollout.batch,
        "max_num_batched_tokens": max(length, PREFILL_TOKENS),
        # A prompt read in pieces would show the processor rows whose token nobody takes.
        "enable_chunked_prefill": False,
        "async_scheduling": False,  # the next step begins when this one's tokens are known
        "enable_prefix_caching": True,
        "gpu_memory_utilization": memory_share(config),
        "enforce_eager": on_cpu,
        "seed": config.run.seed % 2**32,
    }
    return arguments | ({"block_size": CPU_BLOCK} if on_cpu else {})
