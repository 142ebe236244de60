"""What the plug-in can carry into verl: which versions, which methods."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from isentrope.core.errors import ConfigError
from isentrope.core.method import Method
from isentrope.methods.registry import Listed

TESTED = ("0.9.1",)
TERMS = ("epo", "entropy_bonus")
"""Methods whose term can be computed on verl's workers: of entropies and weights alone."""
_HOOKS = ("plan", "evaluation", "weigh", "updated")


def check_version(version: str) -> None:
    if version not in TESTED:
        tested = ", ".join(TESTED)
        warnings.warn(
            f"verl {version} was not tested with isentrope.plugins.verl (tested: {tested}); compare a short run of it "
            "with one of a tested version",
            stacklevel=3,
        )


def refuse(methods: Sequence[Method]) -> None:
    """Methods that would compute something else in verl than they say, or nothing."""
    said: list[str] = []
    for method in methods:
        hooks = [hook for hook in _HOOKS if getattr(type(method), hook) is not getattr(Method, hook)]
        if method.orders or "plan" in hooks or "evaluation" in hooks:
            said.append(f"method {method.name}: it changes how responses are sampled, and verl samples by itself")
        elif hooks:
            said.append(f"method {method.name}: its hook `{hooks[0]}` has no place in verl's workers")
        elif type(method).loss is not Method.loss and method.name not in TERMS:
            said.append(
                f"method {method.name}: its term needs more than entropies (hidden states, parts of a response), which "
                f"verl's loss does not give; terms are carried of {' and '.join(TERMS)}"
            )
    if said:
        raise ConfigError("\n".join(said) + "\nTrain with isentrope train or in TRL, or leave them out")


def read_methods(listed: object) -> tuple[Listed, ...]:
    """Of verl's settings: names, or tables of one name with its options."""
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise ConfigError(
            f"isentrope.methods = {listed!r:.80}: expected a list, such as [aem,{{epo:{{coefficient:0.01}}}}]"
        )
    found: list[Listed] = []
    for entry in cast("Sequence[Any]", listed):
        if isinstance(entry, str):
            found.append(entry)
        elif isinstance(entry, Mapping) and len(cast("Mapping[str, Any]", entry)) == 1:
            ((name, options),) = cast("Mapping[str, Any]", entry).items()
            found.append((str(name), dict(options or {})))
        else:
            raise ConfigError(f"isentrope.methods has {entry!r:.80}: expected a name, or {{NAME:{{OPTION:VALUE}}}}")
    return tuple(found)
