"""Serves a model by two routes of OpenAI's protocol, until it is interrupted."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.requests import Request

from isentrope.config.schema import RunConfig
from isentrope.core.engine import Engine
from isentrope.core.errors import ConfigError
from isentrope.engines.registry import capabilities, make_engine
from isentrope.loop.evaluate import evaluation_plan
from isentrope.loop.session import use_threads
from isentrope.models.auto import follow_model
from isentrope.models.load import load_policy
from isentrope.models.sources.find import find_folder
from isentrope.net.app import WITHOUT_KEY, Door, Guarded, Refusal, json_app, json_object, path_of
from isentrope.net.keys import server_key
from isentrope.net.server import Limits, Server
from isentrope.serving.chat import BadRequest, read_chat
from isentrope.serving.speaker import Reply, Speaker

LIMITS = Limits()
SLOTS = 16  # conversations whose keys and values are kept; so many are sampled together at most
_FINISH = {"tag": "stop", "eos": "stop", "stop": "stop", "length": "length"}


def serve(config: RunConfig, model: str, host: str, port: int | range, key_env: str, name: str) -> None:
    """Serve a model folder or a run's best checkpoint. Returns when interrupted."""
    key = server_key(host, key_env)
    # adapters of the folder are taken into the weights: nothing learns here, so no new ones are wanted
    config = replace(config, policy=replace(config.policy, model=model, lora_rank=0))
    if not capabilities(config).loads_policy:
        raise ConfigError(
            f'engine.kind = "{config.engine.kind}" has a model of its own; serve with engine.kind = "torch" or "vllm"'
        )
    if model != "new":
        find_folder(model, setting="")  # here, as it was no setting that named it
    config = follow_model(config)
    use_threads(config)
    engine = make_engine(config, load_policy(config.policy, config.run, max_context=config.agent.max_context))
    name = name or Path(model).name or "model"
    with running(config, engine, (host, port), name, key) as (server, _):
        server.run_until_interrupted(f"{name} at {server.address}/v1")


@contextmanager
def running(
    config: RunConfig, engine: Engine, address: tuple[str, int | range], name: str, key: str = ""
) -> Generator[tuple[Server, Speaker]]:
    """A server that listens but does not answer yet, and who speaks behind it."""
    slots = min(SLOTS, config.rollout.batch)
    speaker = Speaker(engine, evaluation_plan(config).order, config.agent.max_context, slots, config.agent.action_tags)
    try:
        chat = json_app(ChatApi(speaker, name, config.agent.max_response))
        door = Door(key, words=WITHOUT_KEY)
        with Server(Guarded(chat, door, LIMITS, _error, "the model could not answer"), *address, LIMITS) as server:
            yield server, speaker
    finally:
        speaker.close()


class ChatApi:
    """Answers requests by their paths."""

    def __init__(self, speaker: Speaker, model: str, max_response: int) -> None:
        self._speaker, self._name, self._max_response = speaker, model, max_response
        self._model = {"id": model, "object": "model", "created": int(time.time()), "owned_by": "isentrope"}

    async def __call__(self, request: Request) -> dict[str, Any]:
        path = path_of(request)
        methods = {"/v1/models": "GET", f"/v1/models/{self._name}": "GET", "/v1/chat/completions": "POST"}
        if path not in methods:
            raise BadRequest("there is only /v1/models and /v1/chat/completions here", 404)
        if methods[path] != request.method:
            raise BadRequest(f"{path} takes {methods[path]}", 405)
        if path == "/v1/chat/completions":
            return await self._complete(await json_object(request))
        return {"object": "list", "data": [self._model]} if path == "/v1/models" else self._model

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        model = body.get("model", self._name)
        if model != self._name:
            words = f"model {str(model)[:100]!r} is not here; this is {self._name!r}"
            raise BadRequest(words, 404, param="model", code="model_not_found")
        chat = read_chat(body, self._max_response)
        # in a thread: a long conversation takes a while to be cut into tokens
        reply = await asyncio.to_thread(self._speaker.ask, chat)
        # shielded: the speaker gives its answer, even if nobody waits for it any more
        return _completion(self._name, await asyncio.shield(asyncio.wrap_future(reply)), chat.logprobs)


def _completion(model: str, reply: Reply, logprobs: bool) -> dict[str, Any]:
    asked, sampled = reply.prompt_tokens, len(reply.sampled.ids)
    content = [
        {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(piece), "top_logprobs": []}
        for piece, logprob in zip(reply.pieces, reply.sampled.logprobs.tolist(), strict=True)
    ]
    choice = {
        "index": 0, "message": {"role": "assistant", "content": reply.text}, "finish_reason": _FINISH[reply.stop],
        "logprobs": {"content": content} if logprobs else None,
    }  # fmt: skip
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}", "object": "chat.completion", "created": int(time.time()),
        "model": model, "choices": [choice],
        "usage": {"prompt_tokens": asked, "completion_tokens": sampled, "total_tokens": asked + sampled},
    }  # fmt: skip


def _error(refusal: Refusal) -> dict[str, Any]:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    code = "invalid_api_key" if refusal.status == 401 else getattr(refusal, "code", None)
    param = getattr(refusal, "param", None)
    return {"error": {"message": refusal.message, "type": kind, "param": param, "code": code}}
