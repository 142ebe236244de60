"""How fast the policy learns from a batch: ours against padded rows with whole logits, in the same run.

    python bench/update.py                 # one GPU: SmolLM2-135M's shape, random weights, bfloat16
    python bench/update.py --tiny          # a CPU: a small model in float32, to see that all forms agree

Two batches: `answers`, 256 conversations in groups of 8 with a prompt of 313 to 512 tokens for each group and 64 new
tokens each; `episodes`, 64 conversations of 5 to 30 turns, of which a group shares its first prompt. An update is
forward, loss (clipped, with an entropy term), backward and AdamW over float32 copies of the weights.

    padded, whole logits    the rows of a batch padded to the longest, logits of all tokens in float32
    padded, chunked head    the same rows, logits of response tokens alone, a chunk at a time
    packed                  no padding, attention by segments, chunked head
    packed, fused, compiled the same with the fused head and compiled layers: what training does on a GPU
    + shared beginnings     and what a group's prompts have in common computed once

The gradient of each is compared with float32's on a few conversations: being off is a matter of bfloat16, so the
padded form's own distance is the yardstick. With $OUT set the figures go to $OUT/update.json.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from isentrope.bench.results import Row, finish
from isentrope.bench.work import llama_settings
from isentrope.core.types import Episode, StepTokens, Targets, TokenBatch, Turn
from isentrope.kernels.attention import FLASH
from isentrope.kernels.forward import states_of
from isentrope.learning.optimiser import Optimiser
from isentrope.learning.packing import batch_of, lay_out, micro_batches
from isentrope.learning.prefix_sharing import Bundle
from isentrope.learning.tokens import TokenSequence, flatten
from isentrope.models.hugging_face import HuggingFaceModel, register_attention
from isentrope.models.model_adapter import adapt_model
from isentrope.models.policy import Policy, before
from isentrope.models.token_head import plain_token_head

CEILING = 790e12
"""Bfloat16 operations a second that an H200 was measured to reach."""
SMOLLM2 = llama_settings("smollm2") | {"rms_norm_eps": 1e-5, "rope_theta": 100000.0}
TINY = SMOLLM2 | {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
Head = tuple[Tensor, Tensor]  # log-prob and entropy of the response tokens


@dataclass(frozen=True)
class Setup:
    policy: Policy
    micro: int  # tokens of one forward and backward pass
    quick: bool  # kernels and compiled layers: on a GPU


@dataclass(frozen=True)
class Work:
    """What is learnt from."""

    sequences: Sequence[TokenSequence]
    tokens: StepTokens
    targets: Targets

    @property
    def real(self) -> int:
        """Tokens of all conversations, without padding, each counted whole."""
        return sum(len(s.ids) for s in self.sequences)


@dataclass(frozen=True)
class Form:
    """One way to compute: the pieces of a mini-batch, and log-prob and entropy of one."""

    name: str
    pieces: Callable[[Setup, Work], Iterable[TokenBatch]]
    stats: Callable[[Setup, TokenBatch], Head]


def build(tiny: bool, micro: int = 0) -> Setup:
    from transformers import LlamaConfig, LlamaForCausalLM

    cuda = torch.cuda.is_available() and not tiny
    device, dtype = torch.device("cuda" if cuda else "cpu"), torch.bfloat16 if cuda else torch.float32
    torch.manual_seed(0)
    config: Any = LlamaConfig(**(TINY if tiny else SMOLLM2), attn_implementation=register_attention())
    model = HuggingFaceModel(LlamaForCausalLM(config)).to(device, dtype).eval()
    policy = Policy(model, None, device, dtype)  # type: ignore[arg-type]
    return Setup(policy, micro or (32768 if cuda else 512), cuda)


def turn(rng: np.random.Generator, context: Any, new: int, continues: bool, words: int) -> Turn:
    response = rng.integers(0, words, new).astype(np.int32)
    logp, ones = np.full(new, -np.log(words), dtype=np.float32), np.ones(new, dtype=np.float32)
    return Turn(
        "", None, "", np.asarray(context, dtype=np.int32), continues, response, logp, -logp, ones, None, None,
        "look", "ok", "tag", 0.0,
    )  # fmt: skip


def conversations(kind: str, groups: int, words: int, tiny: bool) -> list[Episode]:
    rng = np.random.default_rng(1)
    shrink = 12 if tiny else 1
    found: list[Episode] = []
    for group in range(groups):
        prompt = rng.integers(0, words, int(rng.integers(313, 513)) // shrink)
        for member in range(8):
            turns = [turn(rng, prompt, 64 // shrink, False, words)]
            for _ in range(int(rng.integers(4, 30)) // (4 if tiny else 1) if kind == "episodes" else 0):
                seen = rng.integers(0, words, int(rng.integers(15, 60)) // (4 if tiny else 1))
                turns.append(turn(rng, seen, int(rng.integers(20, 70)) // shrink, True, words))
            won = bool(rng.random() < 0.5)
            found.append(
                Episode("bench", "train", group, "", "", group, member, "think_act", tuple(turns), won, "terminated")
            )
    order = rng.permutation(len(found))
    return [found[i] for i in order]


def work_of(episodes: Sequence[Episode]) -> Work:
    sequences, tokens = flatten(episodes)
    advantage = np.random.default_rng(2).normal(size=len(tokens.target_N)).astype(np.float32)
    return Work(sequences, tokens, Targets(advantage, tokens.logp_N))


def padded_rows(setup: Setup, work: Work) -> Iterator[TokenBatch]:
    """Rows of one sequence each, in the order in which they come, as many as fit into a pass when all are padded."""
    rows = max(1, setup.micro // max(len(s.ids) for s in work.sequences))
    every = np.concatenate([s.tokens for s in work.sequences])
    weights = {"token": np.full(len(every), 1 / len(every))}
    for a in range(0, len(work.sequences), rows):
        part = work.sequences[a : a + rows]
        alone = [[Bundle((i,), 0, len(s.ids))] for i, s in enumerate(part)]
        layout = lay_out(part, alone, max(len(s.ids) for s in part))
        yield batch_of(layout, work.tokens, work.targets, weights, every, setup.policy.device)


def packed_rows(setup: Setup, work: Work, share: bool = False) -> Iterator[TokenBatch]:
    return micro_batches(
        work.sequences, work.tokens, work.targets, row_tokens=setup.micro, micro_tokens=setup.micro,
        device=setup.policy.device, share=share,
    )  # fmt: skip


def whole_logits(setup: Setup, batch: TokenBatch) -> Head:
    """As trainers do that ask the model for logits: all of them, in float32."""
    model: Any = setup.policy.model
    logits = model.lm(input_ids=batch.ids_BT, use_cache=False).logits.float()
    logp = torch.log_softmax(logits, dim=-1)
    entropy = -(logp.exp() * logp).sum(-1)[:, :-1]
    chosen = logp[:, :-1].gather(-1, batch.ids_BT[:, 1:, None]).squeeze(-1)
    place = batch.row_N, batch.col_N - 1
    return chosen[place], entropy[place]


def chunked(setup: Setup, batch: TokenBatch) -> Head:
    model = setup.policy.model
    states = model.hidden(batch.ids_BT, batch.positions_BT, batch.segments_BT)
    return plain_token_head(before(states, batch), model.head_weight(), batch.target_N, batch.temperature_N)


def segments(setup: Setup, batch: TokenBatch) -> Head:
    """The packed form in plain torch: attention by segments, nothing compiled."""
    parts = adapt_model(setup.policy.model)
    assert parts is not None
    assert batch.spans is not None
    kernels = FLASH if setup.quick else None
    ids, positions = batch.ids_BT.flatten(), batch.positions_BT.flatten()
    states = states_of(parts, ids, positions, batch.spans, setup.policy.dtype, kernels).unflatten(0, batch.ids_BT.shape)
    return plain_token_head(before(states, batch), parts.head, batch.target_N, batch.temperature_N)


def quick(setup: Setup, batch: TokenBatch) -> Head:
    """What training does."""
    stats = setup.policy.stats(batch)
    return stats.logp_N, stats.entropy_N


FORMS = (
    Form("padded, whole logits", padded_rows, whole_logits),
    Form("padded, chunked head", padded_rows, chunked),
    Form("packed", packed_rows, segments),
    Form("packed, fused, compiled", packed_rows, quick),
    Form("+ shared beginnings", lambda setup, work: packed_rows(setup, work, share=True), quick),
)


def backward(setup: Setup, work: Work, form: Form) -> None:
    for batch in form.pieces(setup, work):
        logp, entropy = form.stats(setup, batch)
        ratio = torch.exp(logp - logp.detach())
        loss = -(ratio * batch.advantage_N + 0.01 * entropy) * batch.weights["token"]
        loss.sum().backward()


def gradient(setup: Setup, work: Work, form: Form) -> Tensor:
    module = setup.policy.module
    module.zero_grad()
    backward(setup, work, form)
    found = torch.cat([p.grad.float().flatten() for p in module.parameters() if p.grad is not None])
    module.zero_grad()
    return found


def distances(setup: Setup, work: Work) -> dict[str, float]:
    """How far each form's gradient is from float32's, relative to its size."""
    policy = setup.policy
    model: Any = copy.deepcopy(policy.module).float()
    exact = Setup(Policy(model, policy.tokenizer, policy.device, torch.float32), 4096, False)
    want = gradient(exact, work, FORMS[1])
    return {form.name: float((gradient(setup, work, form) - want).norm() / want.norm()) for form in FORMS}


def operations(setup: Setup, work: Work) -> float:
    """Multiplications and additions that one update needs, whatever the form."""
    parts = adapt_model(setup.policy.model)
    assert parts is not None
    weights = [w for x in parts.layers for w in (x.q, x.k, x.v, x.o, x.gate, x.up, x.down)]
    blocks = sum(w.numel() for w in weights)
    pairs = sum(len(s.ids) ** 2 / 2 for s in work.sequences)
    attention = 12 * pairs * parts.heads * parts.head_size * len(parts.layers)
    return 6.0 * blocks * work.real + 6.0 * parts.head.numel() * len(work.tokens.target_N) + attention


def timed(setup: Setup, work: Work, form: Form, optimiser: Optimiser, rounds: int) -> tuple[float, float]:
    """Seconds of an update, the quickest of some, and the peak of memory in GiB."""
    cuda = setup.policy.device.type == "cuda"
    best = float("inf")
    if cuda:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(rounds + 1):
        began = time.perf_counter()
        backward(setup, work, form)
        optimiser.step(0.0, 1e-6)
        if cuda:
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() / 2**30 if cuda else 0.0
    return best, peak


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU")
    parser.add_argument("--micro", type=int, default=0, help="tokens of one forward and backward pass")
    parser.add_argument("--rounds", type=int, default=2, help="updates that are timed, after one that is not")
    parser.add_argument("--kinds", nargs="+", default=["answers", "episodes"], choices=["answers", "episodes"])
    parser.add_argument("--forms", type=int, nargs="+", default=list(range(len(FORMS))), help="numbers of the forms")
    parser.add_argument("--json", type=Path, help="write the figures there, in the form that all benches share")
    options = parser.parse_args(arguments)
    setup = build(options.tiny, options.micro)
    words = setup.policy.model.head_weight().shape[0]
    result: dict[str, Any] = {"device": str(setup.policy.device), "torch": torch.__version__, "micro": setup.micro}
    slices = {kind: work_of(conversations(kind, 1, words, options.tiny)) for kind in options.kinds}
    apart = {kind: distances(setup, work) for kind, work in slices.items()}
    optimiser = Optimiser(setup.policy.module.parameters())  # from here on gradients move to its float32 copies
    for kind in options.kinds:
        groups = 2 if setup.policy.device.type == "cpu" else 32 if kind == "answers" else 8
        work = work_of(conversations(kind, groups, words, options.tiny))
        print(f"\n{kind}: {len(work.sequences)} conversations, {work.real:,} tokens, {len(work.tokens.target_N):,} of "
              f"them sampled; {setup.micro:,} tokens a pass")  # fmt: skip
        print(f"{'':26}{'tokens/s':>10}{'times':>7}{'GiB':>7}{'share':>7}{'MFU':>7}{'gradient off by':>17}")
        result[kind] = rows = dict[str, dict[str, float]]()
        for form in (FORMS[number] for number in options.forms):
            seconds, peak = timed(setup, work, form, optimiser, options.rounds)
            row = {"tokens_per_second": work.real / seconds, "seconds": seconds, "peak_gib": peak}
            row |= {"mfu": operations(setup, work) / seconds / CEILING, "gradient_off": apart[kind][form.name]}
            rows[form.name] = row
            first = next(iter(rows.values()))
            row["times"] = row["tokens_per_second"] / first["tokens_per_second"]
            row["memory_share"] = peak / first["peak_gib"] if first["peak_gib"] else 0.0
            print(
                f"{form.name:26}{row['tokens_per_second']:10,.0f}{row['times']:7.2f}{peak:7.1f}"
                f"{row['memory_share']:7.2f}{row['mfu']:7.3f}{row['gradient_off']:17.2e}",
                flush=True,
            )
    if options.json:
        finish("update", shared_form(result, options.kinds, setup.policy.device.type == "cuda"), options.json)
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / "update.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


def shared_form(result: dict[str, Any], kinds: Sequence[str], gpu: bool) -> list[Row]:
    """The figures as rows of the table that all benches share: 3 times the tokens and a quarter of the memory."""
    rows: list[Row] = []
    for kind in kinds:
        peer, last = next(iter(result[kind])), list(result[kind])[-1]
        for name, found in result[kind].items():
            best = name == last and gpu
            note = f"gradient off by {found['gradient_off']:.1e}, MFU {found['mfu']:.3f}"
            rows.append(
                Row(
                    f"{kind}: {name}",
                    found["tokens_per_second"],
                    "tokens/s",
                    found["times"],
                    peer,
                    3.0 if best else None,
                    note,
                )
            )
            if found["memory_share"]:
                rows.append(
                    Row(
                        f"{kind}: {name}, memory",
                        found["peak_gib"],
                        "GiB",
                        1 / found["memory_share"],
                        peer,
                        4.0 if best else None,
                    )
                )
    return rows


if __name__ == "__main__":
    main()
