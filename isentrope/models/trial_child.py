"""What the process does in which a model is tried: see `trial.py`. Nothing else imports this."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from isentrope.core.errors import EngineError
from isentrope.core.limits import MIB
from isentrope.models.sources.cache import quiet_transformers
from isentrope.models.tokenizer_rules import check_growth, check_tokenizer_file, probes

SECONDS = {
    "its tokenizer": 30,
    "its chat template": 5,
    "its tokenizer with long texts": 15,
    "its config.json": 20,
    "it": 7200,
}
"""Of a core. The largest tokenizers load in 3 s, templates are taken apart in 20 ms."""
PART_CHARS = 20_000  # of what a template writes around messages
_FORBIDDEN = ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "subprocess.", "os.system", "os.exec",
              "os.fork", "os.posix_spawn", "pty.spawn")  # fmt: skip
Answer = dict[str, Any]


def main() -> None:
    """Reads a request, writes stages and the answer. Whatever a library prints goes nowhere."""
    out = os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(nothing, number)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false",
                   "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HOME": "/nonexistent"}  # fmt: skip

    def stage(name: str) -> None:
        _limit_seconds(SECONDS[name])
        print("stage " + name, file=out, flush=True)

    requests: Any = json.loads(sys.stdin.buffer.read())
    _confine(requests[0])
    print(json.dumps(answers_to(requests, stage)), file=out, flush=True)


def answers_to(requests: Sequence[Mapping[str, Any]], stage: Callable[[str], None]) -> list[Answer]:
    """One for each request, up to the first that is refused."""
    answers: list[Answer] = []
    try:
        for request in requests:
            answers.append(TRIALS[request["what"]](Path(request["folder"]), request, stage))
    except EngineError as error:
        answers.append({"refused": str(error)})
    except BaseException as error:  # Rust's panics are no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        told = " ".join(str(error).split())[:300]
        answers.append({"refused": f"cannot be loaded ({type(error).__name__}: {told}); copy it again, whole"})
    return answers


def _confine(request: Mapping[str, Any]) -> None:
    """From here on: no more memory than that, no large file, no network, no other program. What libraries map to
    themselves does not count: torch with CUDA takes more addresses than all that a trial may."""
    import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    import transformers  # noqa: F401  # pyright: ignore[reportUnusedImport]

    with suppress(ImportError, ValueError, OSError):
        import resource

        written = MIB + 2 * int(request.get("size", 0))  # libraries try the folder for temporary files
        _limit(resource.RLIMIT_FSIZE, written)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _limit(resource.RLIMIT_AS, mapped + int(request["memory"]))

    def refuse(event: str, _: object) -> None:
        if event.startswith(_FORBIDDEN):
            raise EngineError(f"it tried {event}, which loading a model does not need")

    sys.addaudithook(refuse)


def _limit(kind: int, value: int) -> None:
    """Lower than it was, if it was higher."""
    import resource

    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _limit_seconds(seconds: int) -> None:
    """Of a core, from now on; the kernel ends the process."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + seconds, hard))


def _tokenizer(folder: Path, request: Mapping[str, Any], stage: Callable[[str], None]) -> Answer:
    from isentrope.models.chat.template import give_template, renderer, take_apart
    from isentrope.models.chat.tokenizer import ChatTokens, fast_tokenizer, stops_of

    stage("its tokenizer")
    file = folder / "tokenizer.json"
    if file.is_file():
        check_tokenizer_file(file.read_bytes())
    with quiet_transformers():
        tokenizer = fast_tokenizer(folder)
    if not file.is_file():  # put together from files of other kinds
        check_tokenizer_file(tokenizer.backend_tokenizer.to_str().encode())
    give_template(tokenizer, request["template"])
    stage("its chat template")
    parts = take_apart(renderer(tokenizer))
    if parts != take_apart(renderer(tokenizer)):
        raise EngineError("its chat template writes something else each time; give another one: policy.chat_template")
    if (longest := max(len(str(part)) for part in asdict(parts).values())) > PART_CHARS:
        raise EngineError(
            f"its chat template writes {longest:,} characters around a message; expected at most {PART_CHARS:,}"
        )
    stage("its tokenizer with long texts")
    check_growth(tokenizer.backend_tokenizer.normalizer)
    chat = ChatTokens(tokenizer, stops_of(folder, len(tokenizer)), parts)
    for text in probes():
        first, again = (chat.opening("Be good.", text) for _ in range(2))
        chat.pieces(first)
        if first != again:
            raise EngineError("its tokenizer writes the same text in other tokens each time")
    return {"parts": asdict(parts)}


def _model(folder: Path, request: Mapping[str, Any], stage: Callable[[str], None]) -> Answer:
    import torch

    transformers: Any = importlib.import_module("transformers")
    stage("its config.json")
    with quiet_transformers():
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        with torch.device("meta"):
            model: torch.nn.Module = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    made = sum(p.numel() for p in model.parameters()) + sum(b.numel() for b in model.buffers())
    allowed = int(1.5 * request["parameters"]) + MIB
    if made > allowed:
        raise EngineError(
            f"its config.json makes a model of {made:,} numbers, and its weights have {request['parameters']:,}; "
            "they are not of one model: copy both from one place"
        )
    return {"numbers": made}


def _gguf(folder: Path, request: Mapping[str, Any], stage: Callable[[str], None]) -> Answer:
    from safetensors import SafetensorError

    from isentrope.models.sources.gguf import unpack

    stage("it")
    try:
        return {"warning": unpack(Path(request["into"]), Path(request["file"]))}
    except (OSError, SafetensorError) as error:  # a full disk is the latter
        return {"failed": str(error)[:500]}


TRIALS: dict[str, Callable[[Path, Mapping[str, Any], Callable[[str], None]], Answer]] = {
    "tokenizer": _tokenizer,
    "model": _model,
    "gguf": _gguf,
}
