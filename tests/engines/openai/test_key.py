"""Which key goes where: nothing leaves the machine because a file from elsewhere says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isentrope.cli.main import app
from isentrope.config.load import load_config
from isentrope.config.text import config_to_toml
from isentrope.core.errors import ConfigError, EngineError
from isentrope.methods.options import with_options
from isentrope.runs.writer import differences
from tests.builders.toy_runs import make_model, toy_config
from tests.net.faulty import faulty, refuse, say
from tests.serving.helpers import GOOD, KEY, ask, engine_at


def invoke(*arguments: object) -> tuple[int, str]:
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "SOME_SECRET": KEY}
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=environment)
    return done.exit_code, done.output


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder as one downloads it: its config would have a secret of ours sent to its own server."""
    config = toy_config(make_model(tmp_path / "run"), "engine.kind=openai", "engine.key_env=SOME_SECRET")
    (tmp_path / "run" / "config.toml").write_text(config_to_toml(with_options(config)))
    return tmp_path / "run"


def test_a_run_folder_cannot_have_anything_sent_anywhere(foreign: Path) -> None:
    with faulty(say(GOOD)) as server:
        config = (foreign / "config.toml").read_text()
        (foreign / "config.toml").write_text(config.replace("http://127.0.0.1:8000/v1", server.url))
        assert server.url in (foreign / "config.toml").read_text()
        code, output = invoke("eval", foreign, "--games", 2, "--trust")
        assert code == 0, output
        code, output = invoke("eval", foreign, "--trust", "--set", "engine.kind=openai", "--set", "engine.retries=0")
        assert "127.0.0.1:8000/v1" in output  # the default address, not the folder's
        assert server.headers == []


def test_a_recipe_that_was_named_may_name_a_server(foreign: Path) -> None:
    with faulty(say(GOOD)) as server:
        code, output = invoke(
            "eval", "m", "--recipe", foreign / "config.toml", "--games", 1, "--set", f"engine.url={server.url}"
        )
    assert code == 0, output
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_the_rest_of_the_engine_is_still_taken_from_a_run(foreign: Path) -> None:
    from isentrope.cli.options import recipe_or_run

    path = foreign / "config.toml"
    path.write_text(path.read_text().replace('kind = "openai"', 'kind = "vllm"\nmemory = 0.7'))
    assert 'key_env = "SOME_SECRET"' in path.read_text()
    engine = recipe_or_run(None, foreign, ["engine.model=mine"], trust=True).engine
    assert (engine.kind, engine.options["memory"], engine.options["model"]) == ("vllm", 0.7, "mine")
    assert not {"key_env", "url"} & engine.options.keys()


@pytest.mark.parametrize(("url", "sent"), [
    ("https://api.openai.com/v1", True), ("http://127.0.0.1:8000/v1", True), ("http://localhost/v1", True),
    ("https://models.example/v1", False), ("https://api.openai.com.evil.example/v1", False),
    ("https://evil.example/api.openai.com", False), ("http://10.0.0.3:8000/v1", False),
])  # fmt: skip
def test_openais_key_goes_to_openai_and_to_this_machine(monkeypatch: pytest.MonkeyPatch, url: str, sent: bool) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert bool(engine_at(url)._client.key.headers()) == sent
    if url.startswith("https"):  # named, it goes where it is told to
        assert engine_at(url, key_env="OPENAI_API_KEY")._client.key.headers()


def test_a_server_that_wants_a_key_and_got_none() -> None:
    with faulty(refuse(401)) as server, pytest.raises(EngineError, match="no key was sent: put one into"):
        engine_at(server.url, key_env="").sample([ask()])


@pytest.mark.parametrize("text", [KEY, "two words", "1ST", "a=b", "schlüssel", "x\n"])
def test_a_key_in_place_of_its_name_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError, match=r"engine.key_env: expected the name of an environment variable") as caught:
        load_config(None, [f'engine.key_env="{text}"'.replace("\n", "\\n")])
    assert text not in str(caught.value)
    with pytest.raises(EngineError, match=r"engine.key_env: expected the name") as caught:
        engine_at("http://127.0.0.1:9/v1", key_env=text)
    assert text not in str(caught.value)
    code, output = invoke("train", "--out", "never", "--set", "engine.kind=openai", "--set", f"engine.key_env={text}")
    assert code == 2
    assert text not in output


def test_a_key_that_looks_like_a_name_is_not_repeated_either() -> None:
    key = "gsk_0123456789abcdef"
    with faulty(say(GOOD)) as server, pytest.raises(EngineError, match="the environment does not have") as caught:
        engine_at(server.url, key_env=key).sample([ask()])
    assert key not in str(caught.value)
    assert server.headers == []


def test_a_variable_that_is_not_there_is_told_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MYKEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    told = "engine.key_env = MYKEY, but the environment has no MYKEY"
    with faulty(say(GOOD)) as server:
        with pytest.raises(EngineError, match=told):
            engine_at(server.url, key_env="MYKEY", model="")
        assert server.headers == []
        engine_at(server.url, key_env="auto").sample([ask()])  # nobody named a variable: none is missed


@pytest.mark.parametrize(("status", "helps"), [(401, False), (404, True)])
def test_a_models_name_is_asked_for_only_where_it_would_help(status: int, helps: bool) -> None:
    with faulty(refuse(status)) as server, pytest.raises(EngineError) as caught:
        engine_at(server.url, model="")
    assert ("or name the model by engine.model" in str(caught.value)) == helps


def test_a_run_goes_on_whatever_server_is_set() -> None:
    assert differences(load_config(None, ["engine.key_env=OPENAI_API_KEY"]), load_config(None, [])) == []
