"""The methods by name."""

from __future__ import annotations

from isentrope.config.convert import parse_section
from isentrope.config.schema import RunConfig
from isentrope.config.suggest import nearest
from isentrope.errors import ConfigError
from isentrope.methods.actre import ActRe
from isentrope.methods.aem import Aem
from isentrope.methods.base import Method
from isentrope.methods.ea import Ea
from isentrope.methods.entropy_bonus import EntropyBonus
from isentrope.methods.epo import Epo
from isentrope.methods.higher_temperature import HigherTemperature
from isentrope.methods.no_think import NoThink
from isentrope.methods.seal import Seal

METHODS: dict[str, type[Method]] = {
    kind.name: kind for kind in (EntropyBonus, HigherTemperature, Epo, Ea, Seal, Aem, ActRe, NoThink)
}


def make_methods(config: RunConfig) -> list[Method]:
    """The methods of a run, in the order given, each with its own table of settings."""
    made: list[Method] = []
    for name in config.methods:
        if name not in METHODS:
            guess = nearest(name, METHODS)
            hint = f"; did you mean {guess}?" if guess else ""
            raise ConfigError(f"methods: unknown method {name!r}{hint} (known: {', '.join(sorted(METHODS))})")
        kind = METHODS[name]
        options = parse_section(kind.options_class, config.method.get(name, {}), f"method.{name}")
        made.append(kind(options, config.run.steps, config.run.seed))
    _one_order(config, made)
    return made


def _one_order(config: RunConfig, methods: list[Method]) -> None:
    """At most one method may choose the form of a response, and the recipe must not ask for a third."""
    choosing = [method for method in methods if method.orders]
    if len(choosing) > 1:
        said = "; ".join(f"{method.name} asks for {' then '.join(method.orders)}" for method in choosing)
        raise ConfigError(f"methods: only one may set the form of a response: {said}. Leave one of them out")
    for method in choosing:
        if config.agent.order not in (method.orders[-1], "think_act"):
            raise ConfigError(
                f'agent.order = "{config.agent.order}" with methods = ["{method.name}"], which asks for '
                f"{' then '.join(method.orders)}; leave agent.order at think_act"
            )
