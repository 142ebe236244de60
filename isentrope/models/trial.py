"""Tries a model of unknown origin in a process of its own, before anything of it is used in this one.

A tokenizer and a chat template are programs, and a config.json says how much memory is taken. So a child process, with
limits of time and memory, without a network and without a file that it could write, loads the tokenizer, takes the chat
template apart, encodes texts of the kinds and sizes that training has, and makes the model without its weights
(`trial_child.py`). It answers in plain JSON. The parts of the chat template come from there, so a template is never run
in the process that trains. What was tried once is known by the SHA-256 of its files and not tried again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from isentrope.core.errors import EngineError, RunError
from isentrope.core.limits import MIB, NOTE_BYTES, read_json, real
from isentrope.models.chat.template import ChatParts
from isentrope.models.sources.cache import cache_folder, library
from isentrope.models.sources.small_files import MODEL_FILES, Files, laid_out
from isentrope.runs.atomic import write_atomically
from isentrope.sandbox.base import Limits, Outcome
from isentrope.sandbox.own_child import run_module

VERSION = 1  # of what is tried: what another version found good is tried again
LIMITS = Limits(seconds=300.0, memory=1536 * MIB, output=16 * MIB)
CHILD = "isentrope.models.trial_child"
ADVICE = "take the model from a place that you trust, or tell its maker"
Answer = dict[str, Any]
_known: dict[str, Answer] = {}


@dataclass(frozen=True)
class Trial:
    """One thing to try: `what` is tokenizer or model."""

    what: str
    files: Files
    options: Mapping[str, Any]

    @cached_property
    def key(self) -> str:
        about = [VERSION, self.what, *_versions(), self.options]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        for name, data in sorted(self.files.items()):
            digest.update(f"\n{name} {len(data)} ".encode() + hashlib.sha256(data).digest())
        return digest.hexdigest()


def tokenizer_trial(files: Files, template: str = "") -> Trial:
    """Of the tokenizer and its chat template. `template` is the text of another one than its own, or "plain"."""
    return Trial("tokenizer", files, {"template": template})


def model_trial(files: Files, parameters: int) -> Trial:
    """Of config.json: it may not make a model much larger than its weights are."""
    return Trial("model", {name: files[name] for name in MODEL_FILES if name in files}, {"parameters": parameters})


def gguf_trial(file: Path, folder: Path, size: int) -> Trial:
    """The conversion of a GGUF file into `folder`, where it takes `size` bytes as float32."""
    return Trial("gguf", {}, {"file": str(real(file)), "into": str(real(folder)), "size": size})


def chat_parts(folder: Path, trial: Trial) -> ChatParts:
    """The parts of the chat template, as the child took it apart."""
    return ChatParts(**try_all(folder, trial)[0]["parts"])


def try_all(folder: Path, *trials: Trial) -> list[Answer]:
    """What became of each, in one child for those that are not known yet. EngineError if one was refused."""
    unknown = [trial for trial in trials if trial.key not in _known and not _noted(trial)]
    for trial, answer in zip(unknown, in_child(unknown) if unknown else [], strict=False):
        if "refused" in answer:
            raise EngineError(f"{folder}: {answer['refused']}")
        _known[trial.key] = answer
        _note(trial, answer)
    return [_known[trial.key] for trial in trials]


def try_alone(file: Path, trial: Trial) -> Answer:
    """The answer of one that is not remembered."""
    [answer] = in_child([trial], _larger(LIMITS, 3 * trial.options["size"]))
    if "refused" in answer:
        raise EngineError(f"{file}: {answer['refused']}")
    return answer


def _larger(limits: Limits, size: int) -> Limits:
    """For a conversion of so many bytes, at a hundredth of the speed that was measured."""
    return replace(limits, memory=limits.memory + size, seconds=4 * limits.seconds + size / MIB)


def in_child(trials: Sequence[Trial], limits: Limits = LIMITS) -> list[Answer]:
    """What a child says of each, up to the first that is refused, or why it said nothing."""
    library("transformers", "Hugging Face models")
    with ExitStack() as stack:
        places = [str(stack.enter_context(laid_out(trial.files))) for trial in trials]
        told = [
            {"what": trial.what, "folder": place, "memory": limits.memory, **trial.options}
            for trial, place in zip(trials, places, strict=True)
        ]
        outcome = run_module(CHILD, json.dumps(told).encode(), limits)
    lines = outcome.output.decode("utf-8", "replace").splitlines()
    with suppress(ValueError, IndexError):
        answers: Any = json.loads(lines[-1])
        if isinstance(answers, list) and outcome.ended == "exit" and outcome.code == 0:
            return cast("list[Answer]", answers)
    stage = next((line.removeprefix("stage ") for line in reversed(lines) if line.startswith("stage ")), "it")
    return [{"refused": f"{stage} was tried in a process of its own, which {_end(outcome, limits)}; {ADVICE}"}]


def _end(outcome: Outcome, limits: Limits) -> str:
    if outcome.ended == "time":
        return f"did not end within {limits.seconds:.0f} s"
    if outcome.ended == "memory":
        return f"took more than {limits.memory // MIB} MiB"
    if outcome.ended != "exit":
        return f"passed its limit of {outcome.ended}"
    if outcome.code == -24:  # SIGXCPU
        return "used more seconds of a core than an honest one needs"
    if outcome.code < 0:
        return f"was ended by signal {-outcome.code}, as by a lack of memory"
    last = (outcome.output.decode("utf-8", "replace").strip().splitlines() or [""])[-1]
    return f"broke off ({last[:200]})"


@cache
def _versions() -> tuple[str, ...]:
    return tuple(f"{name} {metadata.version(name)}" for name in ("transformers", "tokenizers", "torch"))


def _place(key: str) -> Path:
    return cache_folder() / "tried" / f"{key}.json"


def _noted(trial: Trial) -> bool:
    """Whether it was tried earlier, perhaps by another process; then its answer is known now."""
    with suppress(OSError, ValueError, TypeError):
        answer: Any = read_json(_place(trial.key), NOTE_BYTES)
        if trial.what == "tokenizer":
            ChatParts(**answer["parts"])
        _known[trial.key] = cast("Answer", answer)
        return True
    return False


def _note(trial: Trial, answer: Answer) -> None:
    with suppress(RunError, OSError):  # a cache that cannot be written: tried again next time
        write_atomically(_place(trial.key), json.dumps(answer).encode())
