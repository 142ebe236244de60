"""Checks that a method, a loss or an advantage estimator keeps the contract. Run over all of the package, and made for
your own:

    from isentrope.methods.conformance.suite import assert_conforms

    def test_mine():
        assert_conforms(Mine)

or, on the command line, `isentrope check-method my_package.my_module:Mine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from isentrope.config.convert import field_kinds, parse_section
from isentrope.config.parts import Parts
from isentrope.core.advantage import Advantage
from isentrope.core.errors import ConfigError, IsentropeError, TrainError
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.part import Part
from isentrope.learning.registry import ADVANTAGES, LOSSES
from isentrope.methods.conformance import same
from isentrope.methods.conformance.lab import Lab
from isentrope.methods.conformance.walk import walk
from isentrope.methods.registry import METHODS
from isentrope.worlds.conformance.play import Broken, Skipped, need
from isentrope.worlds.pool.sanitize import in_words

# each check returns a few words, or raises `Broken` with what does not hold, or `Skipped` where it is not for the part

REGISTRIES: tuple[tuple[type[Part], Parts], ...] = ((Method, METHODS), (Loss, LOSSES), (Advantage, ADVANTAGES))
INSIDE = {name: place for _, parts in REGISTRIES for name, place in parts.inside.items()}
FIRST = ("describes itself", "hooks")  # what stops in one of these stops the others too
NOTES = ("time", "plain policy gradient", "groups")  # they tell, and never fail


def find_part(name: str, table: Mapping[str, Any]) -> type[Part]:
    """The class of that name, or of `module:Class`. One that cannot be loaded, or options that it does not have, are a
    ConfigError."""
    holding = next((parts for _, parts in REGISTRIES if name in parts), None)
    kind: Any = (holding or Parts("method, loss or advantage estimator", METHODS.group, INSIDE)).load(name)
    if not isinstance(kind, type) or not issubclass(kind, tuple(base for base, _ in REGISTRIES)):
        expected = "isentrope.Method, isentrope.Loss or isentrope.Advantage"
        raise ConfigError(f"{name!r} is {kind!r:.60}, expected a subclass of {expected}")
    if table:
        parse_section(kind.options_class, table, kind.name)
    return kind


def check_description(lab: Lab) -> str:
    kind = lab.kind
    need(bool(kind.name) and kind.name.isidentifier(), f"name = {kind.name!r}: expected letters, digits and _")
    parts = next(parts for base, parts in REGISTRIES if issubclass(kind, base))
    told = f"name = {kind.name!r} is that of another {kind.what}; choose one that is not in {', '.join(parts)}"
    need(kind.name not in parts or parts.load(kind.name) is kind, told)
    need(bool(kind.summary), "summary is empty: say in one line what it does")
    part = lab.make()
    wrong = part.impossible() if isinstance(part, Method) else []
    need(not wrong, f"its options contradict each other: {'; '.join(wrong)}")
    return f"{kind.what} {kind.name}: {kind.summary}"


def check_hooks(lab: Lab) -> str:
    found = walk(lab).values
    need(not found, "; ".join(dict.fromkeys(found)))
    return "three steps; shapes, types and numbers are right"


def check_gradients(lab: Lab) -> str:
    found = walk(lab)
    need(not found.gradients, "; ".join(dict.fromkeys(found.gradients)))
    if not found.called:
        raise Skipped("it adds no loss and weighs nothing")
    return f"norm {found.norm:.3g} over three steps" if found.norm else "it weighs, without a gradient"


def check_inputs(lab: Lab) -> str:
    found = walk(lab).inputs
    need(not found, "; ".join(dict.fromkeys(found)))
    return "nothing that it was given was changed"


def check_off(lab: Lab) -> str:
    if not issubclass(lab.kind, Method):
        raise Skipped(f"there is always one {lab.kind.what}, so none can be off")
    names = [name for name in ("coefficient", "strength", "weight") if name in field_kinds(lab.kind.options_class)]
    off = dict(lab.kind.off) or dict.fromkeys(names[:1], 0)
    if not off:
        raise Skipped("no option is called coefficient, strength or weight; say `off = {...}` in the class")
    told = ", ".join(f"{name} = {value}" for name, value in off.items())
    different = same.without(lab, off)
    mend = "with it, return None from `loss` and `weigh`, and what came in from `shape` and `plan`"
    need(not different, f"with {told} the run differs from one without the method in {different}; {mend}")
    return f"with {told} the run is the same, bit for bit"


def check_metrics(lab: Lab) -> str:
    lab.run(lab.learner(lab.make()), (1, 2, 3))
    part, keys = lab.make(), sorted(lab.recorded)
    undeclared = [key for key in keys if not lab.kind.declares(part, key)]
    written = ", ".join(f'Metric("{key}", "…")' for key in undeclared)
    need(not undeclared, f"recorded {', '.join(undeclared)}, undeclared; put {written} into `metrics` of the class")
    empty = [metric.key for metric in lab.kind.metrics if not metric.meaning.strip()]
    need(not empty, f"{', '.join(empty)}: the meaning is empty; say in a sentence what the number is")
    unseen = [metric.key for metric in lab.kind.metrics if not any(metric.match(key) is not None for key in keys)]
    return f"{len(keys)} recorded" + (f"; declared and not seen here: {', '.join(unseen)}" if unseen else "")


CHECKS: dict[str, Callable[[Lab], str]] = {
    "describes itself": check_description,
    "hooks": check_hooks,
    "gradients": check_gradients,
    "inputs": check_inputs,
    "off is off": check_off,
    "restart": same.check_restart,
    "order and packing": same.check_order,
    "metrics": check_metrics,
    "sign of the advantage": same.check_sign,
    "plain policy gradient": same.note_policy_gradient,
    "groups": same.note_groups,
    "time": same.note_time,
}


@dataclass(frozen=True)
class Finding:
    """What one check found."""

    name: str
    state: Literal["ok", "BROKEN", "skip", "note"]
    detail: str = ""


def iter_findings(kind: type[Part], table: Mapping[str, Any] | None = None) -> Iterator[Finding]:
    """Every check, with these options and the defaults of the others."""
    lab, stopped = Lab(kind, table or {}), ""
    for name, check in CHECKS.items():
        try:
            detail = check(lab)
        except Skipped as reason:
            yield Finding(name, "skip", str(reason))
        except Broken as problem:
            yield Finding(name, "BROKEN", str(problem))
        except (Exception, SystemExit) as error:  # a broken part may raise anything: that is a finding too
            if stopped:
                yield Finding(name, "skip", f"cannot be told before this is mended: {stopped}")
                continue
            stopped = name if name in FIRST else ""
            yield Finding(name, "BROKEN", str(error) if isinstance(error, IsentropeError) else in_words(error))
        else:
            yield Finding(name, "note" if name in NOTES else "ok", detail)


def assert_conforms(kind: type[Part], table: Mapping[str, Any] | None = None) -> None:
    """Raise a TrainError that lists whatever does not hold."""
    broken = [finding for finding in iter_findings(kind, table) if finding.state == "BROKEN"]
    if broken:
        lines = "\n".join(f"- {finding.name}: {finding.detail}" for finding in broken)
        raise TrainError(f"the {kind.what} {kind.name!r} does not keep the contract\n{lines}")
