"""The vLLM engine: its forward pass, paging and batching; our draws; the policy's own weights.

vLLM runs in this process. Conversations need not be kept by hand: its prefix cache holds what it has read of them.
The weights never touch the disk: vLLM starts with the model's shape alone and takes the weights from memory, at the
start and after every update.

Tokens are drawn inside of vLLM with our own random numbers, by a logits processor. vLLM computes the logits of a whole
batch. The processor takes each row's temperature, draws the token with the request's uniform numbers, writes down
log-prob and entropy of exactly that distribution, and leaves vLLM one choice: the drawn word is the largest. So
temperatures may differ from token to token, the entropy is exact, and a sample does not depend on the batch.
"""

from __future__ import annotations

import importlib
import inspect
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from isentrope.config.convert import parse_choice
from isentrope.config.kinds import GpuOptions
from isentrope.config.schema import RunConfig
from isentrope.core.command import page
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.core.tokenizer import ChatTokenizer
from isentrope.engines.agreement import own_numbers
from isentrope.engines.registry import without_vllm
from isentrope.engines.torch import Answer, draw_next
from isentrope.models.llama import Llama
from isentrope.models.lora import LoraModel, plain_weights
from isentrope.models.policy import Backbone, Policy

KEY = "isentrope"  # under which a request's sampling parameters name its answer
ALLOWED = 0.5  # nats a token; kernels and bfloat16 differ by hundredths, a random layer by several
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
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # not even loaded: what it would draw is drawn here
}


class Board:
    """The answers that are being sampled, by name: what the engine and the processor inside vLLM share."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        self.answers: dict[str, Answer] = {}


class Drawing:
    """vLLM's logits-processor interface. `board` is set by the subclass that `start` makes for an engine."""

    board: Board

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.rows: dict[int, tuple[Answer, list[int]]] = {}  # row -> answer, and what vLLM holds of it

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Nothing to check: only the engine makes requests."""

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow vLLM's rows: requests leave, come and move, in this order."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.rows.pop(row, None)
        for row, params, _, output in batch_update.added:
            self.rows[row] = (self.board.answers[params.extra_args[KEY]], output)
        for source, target, direction in batch_update.moved:
            moved, replaced = self.rows.pop(source, None), self.rows.pop(target, None)
            if moved:
                self.rows[target] = moved
            if replaced and direction.name == "SWAP":
                self.rows[source] = replaced

    def apply(self, logits: Tensor) -> Tensor:
        rows = [self.rows[row] for row in range(len(logits))]
        for answer, output in rows:
            if len(answer.ids) != len(output):
                raise EngineError(
                    f"vLLM holds {len(output)} tokens of a response of {len(answer.ids)}: this version schedules in a "
                    f"way that the engine does not know; {page('engines')} names the versions it was tested with"
                )
        tokens = draw_next([answer for answer, _ in rows], logits, self.board.tokenizer)
        return logits.zero_().scatter_(1, tokens[:, None], 1.0)


def checkpoint_weights(policy: Policy) -> Iterator[tuple[str, Tensor]]:
    """Every weight from memory under its Hugging Face name, adapters merged one matrix at a time, tied weights once."""
    inner = _inner(policy)
    root, prefix = (inner, "model.") if isinstance(inner, Llama) else (cast("Any", inner).lm, "")
    weights = plain_weights(root) if isinstance(policy.model, LoraModel) else root.named_parameters()
    for name, weight in cast("Iterator[tuple[str, Tensor]]", weights):
        yield prefix + name, weight.detach()


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


def widen_head(worker: Any) -> None:
    """Inside vLLM, once: logits in float32 where this version would give them in the layers' precision.

    Newer ones do it by themselves when `head_dtype` asks for it; 0.23 heeds that for models that do not generate alone.
    Logits are computed outside of the recorded and compiled part of the model.
    """
    head = getattr(worker.get_model(), "lm_head", None)
    if worker.model_config.head_dtype != torch.float32 and hasattr(head, "quant_method"):
        cast("Any", head).quant_method.apply = wide_logits


def wide_logits(layer: Any, hidden: Tensor, bias: Tensor | None = None) -> Tensor:
    """A head's product summed up and kept in float32; on a GPU without a float32 copy of its weights."""
    if hidden.is_cuda:
        logits = torch.mm(hidden, layer.weight.t(), out_dtype=torch.float32)
    else:
        logits = torch.nn.functional.linear(hidden.float(), layer.weight.float())
    return logits if bias is None else logits + bias.float()


def vllm_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "vllm":
            raise without_vllm(error.name) from error
        raise EngineError(f"vLLM cannot be loaded: {error}") from error


def start(policy: Policy, config: RunConfig, board: Board) -> Any:
    """vLLM's engine for the shape of this policy, its weights still random."""
    os.environ.update({**_DEFAULTS, **os.environ, **_SETTINGS})  # before vLLM is imported: it reads these then
    # vLLM walks over torch's deprecated names while it loads; nobody here can do anything about it
    warnings.filterwarnings("ignore", message=".*torch.distributed.reduce_op.*", category=FutureWarning)
    version = getattr(vllm_module("vllm"), "__version__", "unknown")
    runner = vllm_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
    if "weights_iterator" not in inspect.signature(runner.reload_weights).parameters:
        raise EngineError(f"vLLM {version} cannot take new weights from memory; version {TESTED} can")
    _must_fit(policy, vllm_module("vllm.platforms").current_platform.device_type)
    base = vllm_module("vllm.v1.sample.logits_processor").LogitsProcessor
    processor = type("IsentropeDrawing", (Drawing, base), {"board": board})  # a class for vLLM to make
    with tempfile.TemporaryDirectory(prefix="isentrope-vllm-") as folder:
        inner = _inner(policy)  # all that is needed on disk is its config.json
        if isinstance(inner, Llama):
            inner.save(Path(folder))  # with its weights, which are small
        else:
            cast("Any", inner).lm.config.save_pretrained(folder)
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


def compare(policy: Policy, request: Request, sampled: Sampled) -> None:
    """Check that vLLM has the policy's weights: its first response, scored by the policy itself.

    vLLM starts with random weights and takes the policy's by name. A name that it does not know would leave a layer
    random, and nothing else would tell.
    """
    own = own_numbers(policy, request, sampled)[0]
    apart = float(np.abs(own - sampled.logprobs).mean())
    if not apart <= ALLOWED:
        raise EngineError(
            f"vLLM and the policy disagree on vLLM's first response by {apart:.2f} nats a token: vLLM did not take all "
            f"of this model's weights. Use engine.kind=torch; {page('engines')} says which models were tried"
        )


class VllmEngine:
    def __init__(self, policy: Policy, config: RunConfig) -> None:
        self.policy, self.tokenizer = policy, policy.tokenizer
        self._board = Board(policy.tokenizer)
        self._count = self._prompt_tokens = self._cached_tokens = 0
        self._compared = False
        self._engine: Any = start(policy, config, self._board)
        self._params = vllm_module("vllm.sampling_params")
        self._engine.model_executor.collective_rpc(widen_head)
        self.refresh()

    def open(self, slots: Sequence[int]) -> None:
        """Nothing to do: what two conversations have in common is read once, whoever holds it."""

    def keep(self, slots: Sequence[int]) -> None:
        """Nothing to do: vLLM gives up the oldest pages when it needs room."""

    def refresh(self) -> None:
        """Take the policy's weights as they are now; what was computed with the old ones is forgotten."""
        rpc = self._engine.model_executor.collective_rpc
        self._wait()
        rpc("reload_weights", kwargs={"weights_iterator": checkpoint_weights(self.policy)})
        rpc(pack_tied_head)
        self._wait()
        if not self._engine.reset_prefix_cache():
            raise EngineError("vLLM would not forget what it computed with the old weights: a request is unfinished")

    def _wait(self) -> None:
        """For the GPU: vLLM has a stream of its own, which does not wait for the one that changes the weights."""
        if self.policy.device.type == "cuda":
            torch.cuda.synchronize(self.policy.device)

    def notes(self) -> dict[str, float]:
        share = self._cached_tokens / max(1, self._prompt_tokens)
        self._prompt_tokens = self._cached_tokens = 0
        return {"cached": share}

    def close(self) -> None:
        if self._engine is None:
            return
        self._engine.engine_core.shutdown()
        self._engine = None
        vllm_module("vllm.distributed.parallel_state").cleanup_dist_env_and_memory()

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        names = [self._submit(request) for request in requests]
        live = dict(zip(names, requests, strict=True))
        try:
            while live:
                for output in self._engine.step():
                    if len(self._board.answers[output.request_id].ids) == 1:  # its first token: the prompt was read
                        self._cached_tokens += int(output.num_cached_tokens or 0)
                done = [name for name in live if self._board.answers[name].stop]
                self._engine.abort_request(done)  # one that vLLM has finished itself is no longer there
                for name in done:
                    del live[name]
            sampled = [self._board.answers[name].sampled() for name in names]
            if requests and not self._compared:
                self._compared = True
                compare(self.policy, requests[0], sampled[0])
            return sampled
        except torch.OutOfMemoryError as error:
            raise EngineError(
                "vLLM ran out of memory while sampling; lower engine.memory, rollout.batch or agent.max_context"
            ) from error
        except RuntimeError as error:
            raise EngineError(f"vLLM failed while sampling: {error}; engine.kind=torch may do") from error
        finally:
            self._engine.abort_request(list(live))
            self._board.answers.clear()

    def _submit(self, request: Request) -> str:
        self._count += 1
        name = str(self._count)
        self._board.answers[name] = Answer(request)
        self._prompt_tokens += len(request.prompt)
        params = self._params.SamplingParams(
            temperature=0.0,  # takes the largest, which is the one that was drawn
            max_tokens=len(request.uniforms),
            ignore_eos=True,  # we end the request ourselves, at the very token that completes the response
            detokenize=False,
            output_kind=self._params.RequestOutputKind.DELTA,
            extra_args={KEY: name},
        )
        self._engine.add_request(name, {"prompt_token_ids": list(request.prompt)}, params)
        return name
