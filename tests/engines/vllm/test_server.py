"""vLLM's own server, asked through the OpenAI-compatible engine: it says what the model says here."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch

from isentrope.config.kinds import ServerOptions
from isentrope.core.engine import Request
from isentrope.core.errors import EngineError
from isentrope.engines.openai.engine import ByteTokens, OpenAIEngine
from isentrope.engines.torch import TorchEngine
from isentrope.models.load import load_folder
from tests.engines.vllm.helpers import never
from tests.models.test_hugging_face import CHATML, make_tokenizer, transformers

TOKENS = 12
KEY = "sk-local-0123456789"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights; vLLM's attention on the CPU wants heads of 32 at least."""
    path, tokenizer = tmp_path_factory.mktemp("model"), make_tokenizer(CHATML)
    torch.manual_seed(1)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512}
    lm = transformers.AutoModelForCausalLM.from_config(transformers.LlamaConfig(**sizes))
    with torch.no_grad():
        for parameter in lm.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    lm.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def url(folder: Path) -> Generator[str]:
    port = free_port()
    arguments = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--enforce-eager"),
        *("--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port), "--dtype", "float32"),
        *("--max-model-len", "256", "--max-num-seqs", "4", "--api-key", KEY, "--generation-config", "vllm"),
    ]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | settings
    ) as it:
        try:
            for _ in range(600):
                assert it.poll() is None, "vLLM's server did not start"
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            it.terminate()
            it.wait(60)


def settings_of(url: str, **more: object) -> ServerOptions:
    return ServerOptions(url=url, key_env="VLLM_KEY", **more)  # type: ignore[arg-type]


def request(prompt: list[int]) -> Request:
    return Request(0, prompt, np.full(TOKENS, 0.5, dtype=np.float32), 0.0, never)


def test_the_same_words_as_here(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_KEY", KEY)
    server = OpenAIEngine(settings_of(url))
    assert server.model == "tiny"
    policy = load_folder(folder, torch.device("cpu"), "float32")
    here, words, tokens = TorchEngine(policy), policy.tokenizer, ByteTokens()
    conversations = [
        (words.opening("be good", "hello"), tokens.opening("be good", "hello")),
        (
            [*words.opening("", "one"), *words.answer("two"), *words.end_of_answer(), *words.user("three")],
            [*tokens.opening("", "one"), *tokens.answer("two"), *tokens.user("three")],
        ),
    ]
    for own, asked in conversations:
        here.open([0])
        [expected] = here.sample([request(own)])
        [got] = server.sample([request(asked)])
        shown = [i for i in expected.ids.tolist() if i not in words.eos_ids]
        # A random model says bytes that are no text; how many marks stand for them is each program's own choice.
        texts = [bytes(got.ids.tolist()), b"".join(words.pieces(shown))]
        assert len({text.decode("utf-8", "replace").replace("\ufffd", "") for text in texts}) == 1
        assert got.stop == expected.stop
        notes = server.notes()
        assert (notes["prompt_tokens"], notes["sampled_tokens"]) == (len(own), len(expected.ids))


def test_its_refusals(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_KEY", raising=False)
    with pytest.raises(EngineError, match="the environment has no VLLM_KEY"):
        OpenAIEngine(settings_of(url))
    monkeypatch.setenv("VLLM_KEY", "another-key")
    with pytest.raises(EngineError, match="401"):
        OpenAIEngine(settings_of(url))
    monkeypatch.setenv("VLLM_KEY", KEY)
    with pytest.raises(EngineError, match=r"404.*engine.model is a name it knows"):
        OpenAIEngine(settings_of(url, model="other")).sample([request(ByteTokens().opening("", "hi"))])
    server = OpenAIEngine(settings_of(url))
    with pytest.raises(EngineError, match="400") as caught:
        server.sample([request(ByteTokens().opening("", "long " * 400))])
    assert KEY not in str(caught.value)
