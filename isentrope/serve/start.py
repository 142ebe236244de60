"""Load a model and serve it until it is interrupted."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine
from isentrope.core.errors import ConfigError, EngineError
from isentrope.engines.openai.api_key import is_local
from isentrope.engines.registry import make_engine
from isentrope.loop.evaluate import evaluation_plan
from isentrope.loop.session import use_threads
from isentrope.models.load import load_policy
from isentrope.models.sources.find import find_folder
from isentrope.serve.http import Server
from isentrope.serve.speaker import Speaker

SLOTS = 16  # conversations whose keys and values are kept; so many are sampled together at most


def serve(config: RunConfig, model: str, host: str, port: int, key_env: str, name: str) -> None:
    """Serve a model folder or a run's best checkpoint. Returns when interrupted."""
    key = _key(host, key_env)
    # adapters of the folder are taken into the weights: nothing learns here, so no new ones are wanted
    config = replace(config, policy=replace(config.policy, model=model, lora_rank=0))
    if config.engine.kind == "openai":
        raise ConfigError('engine.kind = "openai" is a server itself; serve with engine.kind = "torch" or "vllm"')
    if model != "new":
        find_folder(model, setting="")  # here, as it was no setting that named it
    use_threads(config)
    engine = make_engine(config, load_policy(config.policy, config.run, max_context=config.agent.max_context))
    with running(config, engine, (host, port), name or Path(model).name or "model", key) as server:
        # The port may have been 0, for any that is free.
        print(f"{server.model} at http://{host}:{server.server_address[1]}/v1, until interrupted (Ctrl-C)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("Stopped.", flush=True)


@contextmanager
def running(config: RunConfig, engine: Engine, address: tuple[str, int], name: str, key: str = "") -> Generator[Server]:
    """A server whose address is taken but which does not serve yet."""
    slots = min(SLOTS, config.rollout.batch)
    speaker = Speaker(engine, evaluation_plan(config).order, config.agent.max_context, slots, config.agent.action_tags)
    try:
        with _bound(address, speaker, name, config.agent.max_response, key) as server:
            yield server
    finally:
        speaker.close()


def _bound(address: tuple[str, int], speaker: Speaker, name: str, max_response: int, key: str) -> Server:
    try:
        return Server(address, speaker, name, max_response, key)
    except OSError as error:
        where = f"{address[0]}:{address[1]}"
        raise EngineError(
            f"cannot serve at {where}: {error.strerror or error}; choose another --host or --port"
        ) from None


def _key(host: str, key_env: str) -> str:
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise ConfigError(
            "--key-env: expected the name of an environment variable that holds the key that clients send; there is "
            "none of the name given, or it is empty"
        )
    if not key and not is_local(host):
        raise ConfigError(
            f"--host {host} can be reached by others, and there is no key: name the environment variable that holds "
            "one with --key-env, or stay on this machine with --host 127.0.0.1"
        )
    return key
