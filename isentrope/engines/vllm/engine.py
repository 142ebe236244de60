"""The vLLM engine: its forward pass, paging and batching; our draws (draw.py); the policy's own weights.

vLLM runs in this process. Conversations need not be kept by hand: its prefix cache holds what it has read of them.
The weights never touch the disk: vLLM starts with the model's shape alone and takes the weights from memory, at the
start and after every update.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Request, Sampled
from isentrope.core.errors import EngineError
from isentrope.core.types import measured_at
from isentrope.engines.torch import Answer
from isentrope.engines.vllm.draw import KEY, Board
from isentrope.engines.vllm.start import checkpoint_weights, pack_tied_head, start, vllm_module
from isentrope.models.policy import Policy
from isentrope.models.token_head import log_probs

ALLOWED = 0.5  # nats a token; kernels and bfloat16 differ by hundredths, a random layer by several


@torch.no_grad()
def compare(policy: Policy, request: Request, sampled: Sampled) -> None:
    """Check that vLLM has the policy's weights: its first response, scored by the policy itself.

    vLLM starts with random weights and takes the policy's by name. A name that it does not know would leave a layer
    random, and nothing else would tell.
    """
    start, device = len(request.prompt), policy.device
    ids = torch.tensor([[*request.prompt, *sampled.ids.tolist()]], device=device)
    places = torch.arange(ids.shape[1], device=device)[None]
    with policy.compute():
        hidden = policy.model.hidden(ids, places, torch.zeros_like(ids))[0, start - 1 : -1]
    temperatures = torch.from_numpy(measured_at(sampled.temperatures)).to(device)
    words = log_probs(hidden, policy.model.head_weight(), temperatures)
    own = words.gather(1, ids[0, start:, None]).squeeze(1).cpu()
    apart = float((own - torch.from_numpy(sampled.logprobs)).abs().mean())
    if not apart <= ALLOWED:
        raise EngineError(
            f"vLLM and the policy disagree on vLLM's first response by {apart:.2f} nats a token: vLLM did not take all "
            "of this model's weights. Use engine.kind=torch; docs/engines.md says which models were tried"
        )


class VllmEngine:
    def __init__(self, policy: Policy, config: RunConfig) -> None:
        self.policy, self.tokenizer = policy, policy.tokenizer
        self._board = Board(policy.tokenizer)
        self._count = self._prompt_tokens = self._cached_tokens = 0
        self._compared = False
        self._engine: Any = start(policy, config, self._board)
        self._params = vllm_module("vllm.sampling_params")
        self.refresh()

    def open(self, slots: Sequence[int]) -> None:
        """Nothing to do: what two conversations have in common is read once, whoever holds it."""

    def keep(self, slots: Sequence[int]) -> None:
        """Nothing to do: vLLM gives up the oldest pages when it needs room."""

    def refresh(self) -> None:
        """Take the policy's weights as they are now; what was computed with the old ones is forgotten."""
        rpc = self._engine.model_executor.collective_rpc
        rpc("reload_weights", kwargs={"weights_iterator": checkpoint_weights(self.policy)})
        rpc(pack_tied_head)
        if not self._engine.reset_prefix_cache():
            raise EngineError("vLLM would not forget what it computed with the old weights: a request is unfinished")

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
