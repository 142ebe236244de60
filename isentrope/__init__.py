"""Isentrope: reinforcement learning for multi-turn LLM agents, with the policy's entropy in view and under control.

    import isentrope as it

    run = it.train(it.load_config("demo", {"run.steps": 5}), out="runs/first")
    run.curve("entropy/token"), run.diagnosis().words()

Names are loaded when they are first used, so importing the package takes no time. What `__all__` lists is public: its
names and signatures change only with a new minor version, and an old form works for one version more, with a warning.
"""

# ruff: noqa: F401
# pyright: reportUnusedImport=false
# (the imports at the end are for editors and type checkers)
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.4.0"

_NAMES = {
    "isentrope.api": ("Run", "evaluate", "load_config", "rft", "runs", "train", "warm_up"),
    "isentrope.config.schema": ("RunConfig", "setting"),
    "isentrope.core.advantage": ("Advantage", "Estimate", "Outcomes"),
    "isentrope.core.engine": ("Capabilities", "Engine", "Request", "Sampled"),
    "isentrope.core.errors": ("ConfigError", "EngineError", "IsentropeError", "RunError", "TaskError", "TrainError"),
    "isentrope.core.loss": ("Loss",),
    "isentrope.core.method": ("Method",),
    "isentrope.core.metric": ("Metric",),
    "isentrope.core.types": (
        "Episode",
        "RolloutPlan",
        "Shaped",
        "StepTokens",
        "Term",
        "TokenBatch",
        "TokenStats",
        "Turn",
    ),
    "isentrope.rollout.sampler": ("TaskSampler",),
    "isentrope.worlds.contract": ("Expert", "Instance", "Move", "Step", "Task", "View", "World"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'isentrope' has no attribute {name!r}; public names: {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:  # for editors and type checkers: the same names
    from isentrope.api import Run, evaluate, load_config, rft, runs, train, warm_up
    from isentrope.config.schema import RunConfig, setting
    from isentrope.core.advantage import Advantage, Estimate, Outcomes
    from isentrope.core.engine import Capabilities, Engine, Request, Sampled
    from isentrope.core.errors import ConfigError, EngineError, IsentropeError, RunError, TaskError, TrainError
    from isentrope.core.loss import Loss
    from isentrope.core.method import Method
    from isentrope.core.metric import Metric
    from isentrope.core.types import Episode, RolloutPlan, Shaped, StepTokens, Term, TokenBatch, TokenStats, Turn
    from isentrope.rollout.sampler import TaskSampler
    from isentrope.worlds.contract import Expert, Instance, Move, Step, Task, View, World
