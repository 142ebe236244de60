"""What other programs call our metrics.

A name is ours only where a map says so: a number that is called like one of ours by chance is kept as `other/NAME`.
Each map holds what is the same quantity, and nothing else; docs/import.md has the differences that remain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np

from isentrope.core.errors import ConfigError
from isentrope.core.limits import SETTINGS_BYTES, parse_toml, read_bounded
from isentrope.imports.series import Series
from isentrope.metrics.glossary import UnknownMetric, entry_of

OTHER = "other/"  # before a name that is ours in another meaning
NOT_METRICS = ("step", "kind", "nonfinite")
LARGEST_ENTROPY = 13.0  # nats a token: a vocabulary of 260,000 has at most 12.5
_TABLE = "metrics"  # of a file of names
_PREFIX = "train/"  # of transformers, before what it sends to TensorBoard and W&B


@dataclass(frozen=True)
class Names:
    """`telling`: a log is this program's where it has all names of one of these rows. `patterns`: as `table`, with
    groups. `of_turn`: these are of one response only where `single` says that an episode has one turn."""

    name: str
    title: str
    telling: tuple[tuple[str, ...], ...] = ()
    table: Mapping[str, str] = field(default_factory=dict[str, str])  # theirs: ours, the first that is there counts
    patterns: tuple[tuple[str, str], ...] = ()
    of_turn: frozenset[str] = frozenset()
    several_turns: tuple[tuple[str, float], ...] = ()  # names that tell of several turns where they go above a number

    def ours(self, key: str) -> str | None:
        for known in (key, key.removeprefix(_PREFIX)):
            if known in self.table:
                return self.table[known]
        for pattern, ours in self.patterns:
            if (match := re.fullmatch(pattern, key)) is not None:
                return ours.format(*(re.sub(r"[^\w.-]", "-", part)[:64] for part in match.groups()))
        return None


TRL = Names(
    "trl",
    "TRL",
    (("reward", "reward_std"), ("entropy", "completions/mean_length"), ("kl", "completions/mean_length")),
    {
        "reward": "return/mean", "reward_std": "return/std", "frac_reward_zero_std": "advantage/zero_groups",
        "entropy": "entropy/token", "kl": "kl/k3", "loss": "loss/total", "policy_loss": "loss/policy",
        "grad_norm": "grad_norm", "learning_rate": "lr", "clip_ratio/region_mean": "clip/fraction",
        "clip_ratio": "clip/fraction", "clip_ratio/low_mean": "clip/low", "clip_ratio/high_mean": "clip/high",
        "completions/mean_length": "response/tokens", "completion_length": "response/tokens",
        "sampling/sampling_logp_difference/mean": "mismatch/logp_mean",
        "sampling/sampling_logp_difference/max": "mismatch/logp_max",
    },
    ((r"eval[_/](reward)", "eval/eval/return"),),
    frozenset({"response/tokens"}),
    (("tools/call_frequency", -1.0),),
)  # fmt: skip
VERL = Names(
    "verl",
    "verl",
    (("actor/entropy",), ("critic/score/mean",), ("actor/pg_loss",), ("actor/ppo_kl",)),
    {
        "critic/score/mean": "return/mean", "actor/entropy": "entropy/token", "actor/entropy_loss": "entropy/token",
        "actor/pg_loss": "loss/policy", "actor/grad_norm": "grad_norm", "actor/lr": "lr",
        "actor/ppo_kl": "kl/old", "actor/pg_clipfrac": "clip/fraction", "critic/advantages/mean": "advantage/mean",
        "critic/values/mean": "critic/value", "critic/vf_explained_var": "critic/explained",
        "critic/vf_loss": "critic/loss", "critic/grad_norm": "critic/grad_norm",
        "response_length/mean": "response/tokens", "rollout_corr/k3_kl": "mismatch/kl",
    },
    (
        (r"val-core/(.{1,200})/acc/mean@\d+", "eval/{}/success"),
        (r"val-core/(.{1,200})/(?:reward|score)/mean@\d+", "eval/{}/return"),
    ),
    frozenset({"response/tokens"}),
    (("num_turns/max", 2.0),),  # a question and an answer are two
)  # fmt: skip
OURS = Names("isentrope", "Isentrope", (("entropy/token", "return/mean"), ("entropy/token", "success/all")))
NONE = Names("none", "another program")
BUILT_IN = {names.name: names for names in (OURS, VERL, TRL, NONE)}


def told_by(keys: Iterable[str]) -> Names:
    """Whose log it is, by the names in it."""
    there = {key.removeprefix(_PREFIX) for key in keys}
    fits = (names for names in BUILT_IN.values() if any(there.issuperset(row) for row in names.telling))
    return next(fits, NONE)


def chosen(series: Series, names: Names, own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What each name of the log becomes, and what the maps could not be followed in. `own`: ours by theirs, which
    comes first."""
    found, notes, taken = dict[str, str](), list[str](), set[str]()
    missing = [theirs for theirs in own if theirs not in series.keys]
    if missing:
        raise ConfigError(
            f"the log has no metric called {missing[0]!r}, which --map names; it has: {_some(series.keys)}"
        )
    for key, ours in own.items():
        if not _fits(series, key, ours):
            (low, high), (least, most) = _range(series, key), _limits(ours)
            raise ConfigError(
                f"--map {ours}={key}: {ours} lies between {least:g} and {most:g}, and that goes from {low:.3g} to "
                f"{high:.3g}; map it to another metric, return/mean for a reward"
            )
        found[key] = ours
        taken.add(ours)
    several = any(_highest(series, key) > least for key, least in names.several_turns)
    order = {key: place for place, key in enumerate(names.table)}
    for key in sorted(series.keys, key=lambda key: order.get(key.removeprefix(_PREFIX), len(order))):
        if key in found:
            continue
        ours = key if names is OURS and is_ours(key) else names.ours(key)
        if ours is not None and several and ours in names.of_turn:
            notes.append(
                f"{key} is kept under its own name: it counts a whole episode, and episodes have several turns"
            )
            ours = None
        if ours is not None and not _fits(series, key, ours):
            least, most = _limits(ours)
            notes.append(f"{key} is kept under its own name: it leaves {least:g} to {most:g}, where {ours} lies")
            ours = None
        if ours is None or ours in taken:
            ours = OTHER + key if is_ours(key) or key in NOT_METRICS else key
        if ours in taken:
            notes.append(f"{key} is left out: another number has its name")
            continue
        found[key] = ours
        taken.add(ours)
    return found, notes


def is_ours(key: str) -> bool:
    try:
        entry_of(key)
    except UnknownMetric:
        return False
    return True


def _limits(ours: str) -> tuple[float, float]:
    """Where the numbers of a metric of ours lie: what goes beyond is another quantity."""
    if ours.startswith("entropy/") and ours != "entropy/concentration":
        return 0.0, LARGEST_ENTROPY
    try:
        share = entry_of(ours).unit == "share" and ours != "critic/explained"  # 1 is perfect, and there is no worst
    except UnknownMetric:
        share = False
    return (0.0, 1.0) if share else (-np.inf, np.inf)


def _fits(series: Series, key: str, ours: str) -> bool:
    (low, high), (least, most) = _range(series, key), _limits(ours)
    return low >= least - 1e-6 and high <= most + 1e-6


def _range(series: Series, key: str) -> tuple[float, float]:
    values = series.values(key)[1]
    finite = values[np.isfinite(values)]
    return (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)


def _highest(series: Series, key: str) -> float:
    there = [name for name in (key, _PREFIX + key) if name in series.keys]
    return max((_range(series, name)[1] for name in there), default=-np.inf)


def _some(keys: Sequence[str]) -> str:
    return ", ".join(sorted(keys)[:12]) + (", …" if len(keys) > 12 else "")


# -- of the user


def read_map(entries: Sequence[str]) -> dict[str, str]:
    """Ours by theirs, of `OURS=THEIRS` and of files of TOML."""
    found: dict[str, str] = {}
    for entry in entries:
        told = _of_file(Path(entry)) if "=" not in entry else [tuple(entry.split("=", 1))]
        for ours, theirs in told:
            ours, theirs = ours.strip(), theirs.strip()
            _check(ours, theirs, entry)
            if ours in found.values():
                raise ConfigError(f"--map names {ours} twice; each metric of ours has one of theirs")
            found[theirs] = ours
    return found


def _check(ours: str, theirs: str, entry: str) -> None:
    if not ours or not theirs:
        raise ConfigError(f"--map {entry!r}: expected OURS=THEIRS, such as success/all=rewards/correct/mean")
    try:
        entry_of(ours)
    except UnknownMetric as error:
        raise ConfigError(f"--map {entry!r}: {error.args[0]!r} is no metric of ours. {error}") from None


def _of_file(path: Path) -> list[tuple[str, str]]:
    try:
        table = parse_toml(read_bounded(path, SETTINGS_BYTES, found=False).decode("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--map {str(path)!r}: {error}; expected OURS=THEIRS, or a file of TOML with a table [{_TABLE}] of them"
        ) from error
    told: Any = table.get(_TABLE)
    if not isinstance(told, dict) or not all(isinstance(name, str) for name in cast("dict[str, Any]", told).values()):
        raise ConfigError(
            f'{path} has no table [{_TABLE}] with lines such as "entropy/token" = "policy/entropy": ours on the left'
        )
    return list(cast("dict[str, str]", told).items())
