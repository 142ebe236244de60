"""Names on the Hugging Face hub: a cache as huggingface_hub lays it out, and a small hub of our own on this machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from safetensors.numpy import save

from isentrope.core.errors import EngineError
from isentrope.models.sources.find import find_folder, present_folder
from isentrope.models.sources.hub import cached_folder, cached_models, download, hub_name

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 4}).encode(),
    "tokenizer.json": b"{}",
    "model.safetensors": save({"w": np.zeros((2, 3), np.float32)}),
    "README.md": b"---\nlicense: mit\n---\n",
    "pytorch_model.bin": b"a pickle",
    "modeling_own.py": b"raise SystemExit",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def fill(cache: Path, name: str = "org/small", leave_out: str = "", ref: str | None = "main") -> Path:
    base = cache / f"models--{name.replace('/', '--')}"
    folder = base / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    for file, content in FILES.items():
        if file != leave_out:
            (folder / file).write_bytes(content)
    if ref:
        (base / "refs").mkdir()
        (base / "refs" / ref).write_text(COMMIT)
    return folder


def test_names() -> None:
    assert hub_name("Qwen/Qwen2.5-0.5B-Instruct") == ("Qwen/Qwen2.5-0.5B-Instruct", "main")
    assert hub_name("org/name@refs/pr/1") == ("org/name", "refs/pr/1")
    for text in ("name", "a/b/c", "../x", "./x", "/x/y", "org/../x", "a--b/c", "org/na me", "~/model", "org/x@../../y"):
        assert hub_name(text) is None, text


def test_what_was_downloaded_is_found_without_a_network(cache: Path) -> None:
    folder = fill(cache)
    assert find_folder("org/small") == folder
    assert find_folder(f"org/small@{COMMIT}") == folder
    assert cached_folder("org/small", "v2") is None
    assert list(cached_models()) == [("org/small", folder)]


def test_a_revision_alone_is_listed_by_its_commit(cache: Path) -> None:
    folder = fill(cache, ref=None)
    assert present_folder("org/small") is None
    assert list(cached_models()) == [(f"org/small@{COMMIT}", folder)]


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
def test_half_a_download_is_none(cache: Path, file: str) -> None:
    fill(cache, leave_out=file)
    assert present_folder("org/small") is None
    assert list(cached_models()) == []


def test_a_missing_part_of_the_weights_is_noticed(cache: Path) -> None:
    folder = fill(cache)
    parts = {"w": "model.safetensors", "v": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    assert present_folder("org/small") is None


class Hub(BaseHTTPRequestHandler):
    """The three answers that huggingface_hub asks for: what a model has, what a file is, and the file."""

    files = FILES

    def do_GET(self) -> None:
        if self.path.startswith("/api/models/org/small/"):
            tree = [
                {"type": "file", "path": n, "rfilename": n, "size": len(c), "oid": "0"} for n, c in self.files.items()
            ]
            body = tree if "/tree/" in self.path else {"id": "org/small", "sha": COMMIT, "siblings": tree}
            return self.answer(json.dumps(body).encode(), "application/json")
        content = self.files.get(self.path.split("?")[0].rsplit("/", 1)[-1])
        if content is None or not self.path.startswith("/org/small/resolve/"):
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        return self.answer(content, "application/octet-stream")

    do_HEAD = do_GET

    def answer(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def serve(files: dict[str, bytes]) -> tuple[ThreadingHTTPServer, str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Served", (Hub,), {"files": files}))
    Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def hub(cache: Path) -> Iterator[str]:
    pytest.importorskip("huggingface_hub", reason="pip install 'isentrope[hf]'")
    server, address = serve(FILES)
    yield address
    server.shutdown()
    server.server_close()


def test_a_download_takes_weights_and_tokenizer_but_no_pickle_and_no_code(hub: str, cache: Path) -> None:
    folder = download("org/small", "main", endpoint=hub)
    assert {file.name for file in folder.iterdir()} == set(FILES) - {"pytorch_model.bin", "modeling_own.py"}
    assert (folder / "model.safetensors").read_bytes() == FILES["model.safetensors"]
    assert present_folder("org/small") == folder


def test_a_name_that_the_hub_does_not_know(hub: str) -> None:
    with pytest.raises(EngineError, match="there is no such folder here, and the hub has no such model"):
        download("org/other", "main", endpoint=hub)


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"pytorch_model.bin": b"x"}, "only as pickle"),
        ({"m.gguf": b"x"}, "GGUF files: download one"),
        ({}, "not at all"),
    ],
)
def test_nothing_is_fetched_where_nothing_could_be_loaded(cache: Path, files: dict[str, bytes], reason: str) -> None:
    pytest.importorskip("huggingface_hub", reason="pip install 'isentrope[hf]'")
    server, address = serve(files)
    try:
        with pytest.raises(EngineError, match=reason):
            download("org/small", "main", endpoint=address)
    finally:
        server.shutdown()
        server.server_close()
    assert not cache.exists()


def test_no_network_is_said_so(cache: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="pip install 'isentrope[hf]'")
    with pytest.raises(
        EngineError, match=r"there is no folder org/small here; org/small is not in .*could not be reached"
    ):
        download("org/small", "main", endpoint="http://127.0.0.1:9")
