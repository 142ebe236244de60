"""Loads a policy by name or folder, and puts it on a device."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from isentrope.config.schema import CriticSettings, LearnSettings, PolicySettings, RunSettings
from isentrope.core.errors import ConfigError, EngineError
from isentrope.core.limits import real
from isentrope.core.seeding import stream_key
from isentrope.core.tokenizer import TAGS, ChatTokenizer
from isentrope.models.kv_cache import Cache
from isentrope.models.llama import Llama, Shape
from isentrope.models.lora import Base, is_adapter, load_adapter, merged, with_adapters
from isentrope.models.memory import Plays, check_memory, memory_of
from isentrope.models.policy import Policy
from isentrope.models.sources.catalogue import Facts, check_folder, check_sizes, read_config, read_facts, weight_shapes
from isentrope.models.sources.find import POCKET, base_folder, find_folder
from isentrope.models.sources.pocket import PocketTokens
from isentrope.models.sources.small_files import read_small
from isentrope.models.token_head import logits
from isentrope.models.trial import model_trial, tokenizer_trial, try_all
from isentrope.runs.recovery import refuse_damaged

TOKENS, FIRST = 9, 5
LARGE = 50_000_000  # parameters from which bfloat16 pays on a GPU


@torch.no_grad()
def check_model(policy: Policy) -> None:
    """EngineError if reading whole, packed, piece by piece and by the model itself do not agree, on a few tokens.

    Sampling reads tokens piece by piece with a cache of ours, scoring reads packed rows with a mask of ours. An
    architecture that keeps its past elsewhere, or attends in another way, would give other numbers without an error.
    """
    name = type(cast("Any", policy.model).lm).__name__
    try:
        with policy.compute():
            differences = _differences(policy)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a model's own code may raise anything when it is used in a way it does not know
        raise EngineError(f"{name} is not supported: it cannot be read in packed rows and pieces ({error})") from error
    allowed = 0.3 if policy.weights == torch.bfloat16 or policy.dtype == torch.bfloat16 else 1e-2
    for what, difference in differences.items():
        if not difference <= allowed:
            raise EngineError(
                f"{name} is not supported: {what}, its numbers are off by {difference:.2g} of their size; "
                "only models with full attention, and nothing else that remembers, work here"
            )


def _differences(policy: Policy) -> dict[str, float]:
    model, device = policy.model, policy.device
    vocabulary = model.head_weight().shape[0]
    ids = (torch.arange(1, TOKENS + 1, device=device) * 7919) % vocabulary
    places = torch.arange(TOKENS, device=device)

    def alone(part: Tensor) -> Tensor:
        return model.hidden(part[None], places[None, : len(part)], torch.zeros_like(part)[None])[0]

    whole, second = alone(ids), alone(ids[FIRST:])
    segments = (places >= FIRST).long()[None]
    packed = model.hidden(ids[None], (places - FIRST * segments[0])[None], segments)[0]
    cache, parts = Cache(1, device), (ids[:FIRST], ids[FIRST:])
    pieces = [model.extend(cache, part[None], torch.tensor([len(part)], device=device))[0] for part in parts]
    own: Tensor = cast("Any", policy.model).lm(input_ids=ids[None]).logits[0]
    return {
        "in packed rows": max(_apart(packed[:FIRST], whole[:FIRST]), _apart(packed[FIRST:], second)),
        "read piece by piece": max(_apart(pieces[0], whole[FIRST - 1]), _apart(pieces[1], whole[-1])),
        "in its head": _apart(logits(whole, model.head_weight()), own),
    }


def _apart(a: Tensor, b: Tensor) -> float:
    a, b = a.float(), b.float()
    return float(((a - b).square().sum() / b.square().sum().clamp(min=1e-20)).sqrt())


def check_positions(name: str, facts: Facts, max_context: int) -> None:
    """Refuse conversations that are longer than a table of positions. Rotary positions go on without an end, but the
    model has never seen the far ones: a warning. `max_context` 0 is not known."""
    if not 0 < facts.context < max_context:
        return
    if facts.learned_positions:
        raise ConfigError(
            f"agent.max_context = {max_context}, and {name} has {facts.context} positions and no more; "
            f"set agent.max_context={facts.context} or less, or take a model with a longer context"
        )
    print(
        f"WARNING: agent.max_context = {max_context}, and {name} was made for {facts.context} tokens: in longer "
        f"conversations it may write nonsense. Set agent.max_context={facts.context} or less",
        file=sys.stderr,
    )


def choose_device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"run.device = {name!r} cannot be used here ({reason}); try auto or cpu") from error
    return device


def choose_dtype(name: str, device: torch.device, parameters: int) -> torch.dtype:
    """Small models gain nothing from bfloat16 and lose precision, so auto keeps them in float32 everywhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" and parameters >= LARGE else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


def new_model(settings: PolicySettings, vocabulary: int, seed: int) -> Llama:
    """The pocket shape with random weights."""
    width, heads = settings.width, settings.heads
    model = Llama(Shape(vocabulary, width, settings.layers, heads, kv_heads=max(1, heads // 2), inner=width * 3))
    model.initialise(torch.Generator().manual_seed(stream_key(seed, "policy") % 2**63))
    return model


def load_policy(
    settings: PolicySettings,
    run: RunSettings,
    learn: LearnSettings | None = None,
    critic: CriticSettings | None = None,
    max_context: int = 0,
    checkpoint: Path | None = None,
    plays: Plays | None = None,
) -> Policy:
    """The policy that a run begins with, or goes on with from a checkpoint's folder. With `learn`, its memory is looked
    at for training, else for sampling; with `max_context`, whether it has so many positions; with `plays`, what the
    engine's cache will take is counted too."""
    device = choose_device(run.device)
    if settings.model == "new" and checkpoint is None:
        if settings.lora_rank:
            raise ConfigError(
                "policy.model = new with policy.lora_rank: random weights have to learn themselves; set 0"
            )
        tokens = PocketTokens.load(POCKET)
        return _placed(new_model(settings, tokens.size, run.seed), tokens, device, run.dtype, run.weights)
    folder = checkpoint or find_folder(settings.model)
    if not checkpoint:  # that of a run that goes on was looked at when it was chosen
        refuse_damaged(folder)
    if (base := base_folder(folder)) != folder:
        refuse_damaged(base)
    facts = read_facts(base)
    check_positions(settings.model, facts, max_context)
    held = _held(run.dtype, run.weights, device, facts.parameters)[1]
    cache = plays.room(facts, max_context, memory_of(device)) if plays else 0
    check_memory(settings.model, facts, device, settings.lora_rank, held, learn, critic, cache)
    if checkpoint:
        return load_folder(folder, device, run.dtype, run.weights)
    if is_adapter(folder) and not settings.lora_rank:
        # added in float32: a change of half a hundredth of a weight would lose a third of itself in bfloat16
        plain = merged(load_folder(folder, device, "float32", "float32", settings.chat_template))
        return _placed(plain.module, plain.tokenizer, device, run.dtype, run.weights)
    policy = load_folder(folder, device, run.dtype, run.weights, settings.chat_template)
    if settings.lora_rank:
        return with_adapters(policy, settings, run.seed, Base(settings.model, str(real(folder))))
    return policy


def load_folder(folder: Path, device: torch.device, dtype: str, weights: str = "auto", template: str = "") -> Policy:
    """The model of a folder. Adapters stay apart from the model they stand on, which is found and loaded too."""
    if is_adapter(folder):
        learnt_with = folder / "chat_template.jinja"
        template = template or (str(learnt_with) if learnt_with.is_file() else "")
        return load_adapter(folder, load_folder(base_folder(folder), device, dtype, weights, template))
    if (folder / "pocket_tokens.json").is_file():
        return _placed(Llama.load(folder), PocketTokens.load(folder), device, dtype, weights)
    from isentrope.models.chat.template import read_template
    from isentrope.models.chat.tokenizer import ChatTokens
    from isentrope.models.hugging_face import HuggingFaceModel

    facts, files = check_folder(folder), read_small(folder)
    check_sizes(folder, read_config(folder), weight_shapes(folder))
    try_all(folder, tokenizer_trial(files, read_template(template)), model_trial(files, facts.parameters))  # one child
    tokenizer = ChatTokens.load(folder, template)
    check_tags(tokenizer, facts.vocabulary, folder)
    policy = _placed(HuggingFaceModel.load(folder), tokenizer, device, dtype, weights)
    check_model(policy)
    return policy


def check_tags(tokenizer: ChatTokenizer, rows: int, folder: Path) -> None:
    """The tags of a response must come back from the tokenizer as they went in, in tokens that the model has."""
    for tag in TAGS:
        read = b"".join(tokenizer.pieces(tokenizer.answer(tag))).decode("utf-8", "replace")
        if read.strip() != tag:  # some templates have a space in front of every answer
            raise EngineError(
                f"{folder}: the vocabulary is too small for {tag}, which its tokenizer gives back as {read!r}; "
                "take a model with a byte-level tokenizer"
            )
    parts = (tokenizer.opening("a", "a"), tokenizer.user("a"), tokenizer.end_of_answer(), tokenizer.eos_ids)
    highest = max(i for ids in (*parts, *map(tokenizer.answer, TAGS)) for i in ids)
    if highest >= rows:
        raise EngineError(
            f"{folder}: its tokenizer uses token {highest}, and the model has {rows} of them; "
            "the tokenizer belongs to another model, or the model was not enlarged for it"
        )


def _placed(model: torch.nn.Module, tokenizer: object, device: torch.device, dtype: str, weights: str) -> Policy:
    compute, held = _held(dtype, weights, device, sum(p.numel() for p in model.parameters()))
    for parameter in model.parameters():  # buffers stay as they are: rotary frequencies are worth their float32
        parameter.data = parameter.data.to(held)
    model.to(device).eval()
    return Policy(model, tokenizer, device, compute)  # type: ignore[arg-type]


def _held(dtype: str, weights: str, device: torch.device, count: int) -> tuple[torch.dtype, torch.dtype]:
    """(what is computed in, what the weights are held in)."""
    compute = choose_dtype(dtype, device, count)
    held = compute if weights == "auto" else choose_dtype(weights, device, count)
    if held == torch.bfloat16 and compute == torch.float32:
        if dtype == "float32":
            raise ConfigError("run.weights = bfloat16 computes in bfloat16; run.dtype = float32 needs float32 weights")
        compute = held
    return compute, held
