"""Refuses combinations of settings that cannot be run, each with a sentence."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

from isentrope.config.algorithms import GIGPO_FORMS
from isentrope.config.schema import RunConfig
from isentrope.config.suggest import did_you_mean

# task.where
PLACES = ("auto", "local", "processes")


def is_local(host: str) -> bool:
    """Whether a host's name can only mean this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_remote(where: str) -> bool:
    """Whether task.where names servers."""
    return "://" in where


def addresses(where: str) -> tuple[str, ...]:
    """The servers' addresses in task.where, which stand between commas."""
    return tuple(dict.fromkeys(part.strip().rstrip("/") for part in where.split(",") if part.strip()))


def where_problem(where: str, workers: int) -> str | None:
    """What is wrong with task.where, in a sentence."""
    if where == "local" and workers:
        return (
            f'task.workers = {workers} with task.where = "local": tasks are played in worker processes or in this one, '
            "not in both; leave one of the settings out"
        )
    if where in PLACES:
        return None
    if workers and is_remote(where):
        return f"task.workers = {workers} with task.where = {where!r}: a task server has its own workers; leave it out"
    if not is_remote(where) or not addresses(where):
        return f"task.where = {where!r}: expected {', '.join(PLACES)}, or addresses such as http://127.0.0.1:8100"
    for address in addresses(where):
        try:
            parts = urlsplit(address)
            fine = bool(parts.hostname) and parts.scheme in ("http", "https") and parts.port != 0
        except ValueError:  # a port that is no number
            parts, fine = urlsplit(""), False
        if not fine or not address.isascii() or not address.isprintable() or " " in address:
            return f"task.where = {where!r}: {address!r} is not an address such as http://127.0.0.1:8100"
        if "@" in parts.netloc or parts.query or parts.fragment:
            return (
                "task.where holds a user name, a password or a query, which would be written into config.toml; give "
                "the plain address of the server, and its key in the environment variable that task.key_env names"
            )
    return None


# run.track
TRACKERS = ("wandb", "mlflow", "trackio")


def trackers_of(track: str) -> tuple[str, ...]:
    """The names, each once: `wandb, mlflow`."""
    return tuple(dict.fromkeys(name.strip() for name in track.split(",") if name.strip()))


def track_problem(track: str) -> str | None:
    unknown = [name for name in trackers_of(track) if name not in TRACKERS]
    if not unknown:
        return None
    return f'run.track = "{track}": expected {", ".join(TRACKERS)}, several with commas, or nothing'


# instruments.on_alarm
PLAIN = ("nothing", "checkpoint", "pause")
_SWITCH = re.compile(r"switch:([A-Za-z0-9_.:]+)")


def switched_method(on_alarm: object) -> str | None:
    """The method that an alarm is to switch on: `switch:METHOD`; None if none is."""
    found = _SWITCH.fullmatch(on_alarm) if isinstance(on_alarm, str) else None
    return found[1] if found else None


def switched_in(table: object) -> str | None:
    """The same from the [instruments] table of a recipe, whatever that may be."""
    return switched_method(cast("dict[str, Any]", table).get("on_alarm")) if isinstance(table, dict) else None


def on_alarm_problem(on_alarm: str) -> str | None:
    if on_alarm in PLAIN or switched_method(on_alarm) is not None:
        return None
    return (
        f'instruments.on_alarm = "{on_alarm}": expected {", ".join(PLAIN)} or switch: and the name of a method, '
        "such as switch:seal"
    )


_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")
_TAG = re.compile(r"[a-z][a-z0-9_]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def impossible(config: RunConfig) -> list[str]:
    """All that is wrong with the config as a whole; empty if it can be run."""
    return [*_shapes(config), *_cluster(config), *_learning(config), *_methods(config)]


def is_variable_name(text: str) -> bool:
    return _VARIABLE.fullmatch(text) is not None


def _shapes(config: RunConfig) -> Iterator[str]:
    policy, agent = config.policy, config.agent
    if policy.width % policy.heads:
        yield f"policy.width = {policy.width} must be a multiple of policy.heads = {policy.heads}"
    elif (policy.width // policy.heads) % 2:
        size = policy.width // policy.heads
        yield (
            f"policy.width / policy.heads = {size} must be even, for rotary positions; "
            f"try policy.width = {policy.heads * (size + 1)}"
        )
    if agent.max_response >= agent.max_context:
        yield (
            f"agent.max_response = {agent.max_response} must be less than agent.max_context = {agent.max_context}: "
            "the context holds the prompt too"
        )
    tags = agent.action_tags
    if not tags or len(set(tags)) < len(tags) or not all(_TAG.fullmatch(tag) and tag != "think" for tag in tags):
        yield (
            f"agent.action_tags = {list(tags)}: expected one or more different names of lower-case letters, digits "
            'and _, other than think, such as ["search", "answer"]'
        )
    if not _DEVICE.fullmatch(config.run.device):
        yield f'run.device = "{config.run.device}": expected auto, cpu, mps, cuda or cuda:N'
    key_env = config.engine.options.get("key_env")
    if key_env and not is_variable_name(str(key_env)):
        # not repeated: it may well be the key itself
        yield (
            "engine.key_env: expected the name of an environment variable that holds the key, such as OPENAI_API_KEY "
            "(letters, digits and _); what stands there cannot be one. A key itself never belongs into settings"
        )
    if problem := track_problem(config.run.track):
        yield problem
    if problem := where_problem(config.task.where, config.task.workers):
        yield problem
    if config.task.key_env and not is_variable_name(config.task.key_env):
        yield "task.key_env: expected the name of an environment variable that holds the key (letters, digits and _)"
    for name, text in (("policy.model", policy.model), ("task.world", config.task.world)):
        if not text.strip():
            yield f"{name} is empty"


def _cluster(config: RunConfig) -> Iterator[str]:
    cluster, engine = config.cluster, config.engine
    if cluster.kind == "local":
        if cluster.engines > 1:
            yield (
                f'cluster.engines = {cluster.engines} with cluster.kind = "local": there is one engine; set '
                'cluster.kind = "processes"'
            )
        if cluster.trainers > 1:
            yield (
                f'cluster.trainers = {cluster.trainers} with cluster.kind = "local": one process learns; set '
                'cluster.kind = "processes"'
            )
        return
    small = [
        f"learn.{name} = {value}"
        for name, value, plain in (
            ("optimiser", config.learn.optimiser, "adamw"),
            ("moments", config.learn.moments, "card"),
        )
        if value != plain
    ]
    if small and cluster.trainers > 1:
        yield (
            f"{' and '.join(small)} with cluster.trainers = {cluster.trainers}: ranks share the optimiser as float32 "
            'parts; set learn.optimiser = "adamw" and learn.moments = "card", or cluster.trainers = 1'
        )
    if engine.kind == "openai":
        yield 'cluster.kind = "processes" with engine.kind = "openai": a server samples, not this machine; use "local"'
    if engine.options.get("drafts"):
        yield (
            f'engine.drafts = {engine.options["drafts"]} with cluster.kind = "processes": what a sampler drafts would '
            "follow from what it happened to be asked before, so last bits would differ from run to run; set "
            "engine.drafts = 0"
        )


def _learning(config: RunConfig) -> Iterator[str]:
    learn, rollout = config.learn, config.rollout
    advantage, loss = learn.advantage.kind, learn.loss.kind
    if advantage in ("grpo", "rloo", *GIGPO_FORMS) and rollout.group_size < 2:
        yield (
            f'rollout.group_size = {rollout.group_size} with learn.advantage = "{advantage}": a group is '
            "compared with itself, so every advantage would be 0; use 2 or more"
        )
    if loss == "policy_gradient" and learn.mini_batches * learn.epochs > 1:
        yield (
            f'learn.loss = "policy_gradient" with {learn.mini_batches * learn.epochs} updates per step: without a '
            'ratio only the first would be right; use learn.mini_batches = learn.epochs = 1, or learn.loss = "clip"'
        )
    if advantage == "reinforce" and rollout.groups * rollout.group_size < 2:
        yield 'rollout.groups × rollout.group_size = 1 with learn.advantage = "reinforce": every advantage would be 0'
    if advantage == "gae" and config.critic.warmup >= config.run.steps:
        yield (
            f"critic.warmup = {config.critic.warmup} with run.steps = {config.run.steps}: the policy would "
            "never learn; use fewer steps of critic warm-up"
        )
    if config.sft.source == "own" and config.sft.orders:
        yield 'sft.orders with sft.source = "own": own games have the form they were played in; leave sft.orders out'
    if learn.resample and rollout.group_size < 2:
        yield f"learn.resample = {learn.resample} with rollout.group_size = 1: every group would be equal"
    if learn.mini_batches > rollout.groups:
        yield (
            f"learn.mini_batches = {learn.mini_batches} must be at most rollout.groups = {rollout.groups}: "
            "the episodes of a group stay together"
        )
    if learn.mismatch == "truncate" and learn.old_logprobs == "sampler":
        yield (
            f'learn.mismatch = "truncate" with learn.old_logprobs = "{learn.old_logprobs}": the weights need the '
            'trainer\'s own log-probs; set learn.old_logprobs = "recompute", or learn.mismatch = "keep"'
        )
    if rollout.ahead and (learn.old_logprobs, learn.mismatch) != ("recompute", "truncate"):
        yield (
            f'rollout.ahead = {rollout.ahead} with learn.old_logprobs = "{learn.old_logprobs}" and learn.mismatch = '
            f'"{learn.mismatch}": episodes are played with older weights, and only learn.old_logprobs = "recompute" '
            'with learn.mismatch = "truncate" corrects for that'
        )
    for name, beta in (("beta1", learn.beta1), ("beta2", learn.beta2)):
        if beta >= 1:
            yield f"learn.{name} = {beta} must be below 1: at 1 AdamW never takes in a gradient"


def _methods(config: RunConfig) -> Iterator[str]:
    for name in dict.fromkeys(config.methods):
        if config.methods.count(name) > 1:
            yield f"methods lists {name} more than once"
    if problem := on_alarm_problem(config.instruments.on_alarm):
        yield problem
    switched = switched_method(config.instruments.on_alarm)
    tables: dict[str, Any] = config.method
    outside = any(
        ":" in name for name in (*config.methods, switched or "")
    )  # what they call themselves is not known here
    for name, table in tables.items():
        if not isinstance(table, dict):
            yield f"method.{name} = {table!r}: expected a table, [method.{name}]"
        elif name not in config.methods and name != switched and not outside:
            hint = did_you_mean(name, config.methods) if config.methods else f'; add methods = ["{name}"]'
            yield f"[method.{name}] belongs to a method that is not in `methods`{hint}"
