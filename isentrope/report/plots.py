"""Which metrics are drawn, under which titles. A plot whose numbers were never written is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Plot:
    """A line chart of some keys over the training steps. A key that ends in / stands for all that start so."""

    title: str
    keys: dict[str, str]  # key -> name in the legend
    caption: str = ""  # default: what the first key means
    shares: bool = False
    full: bool = False
    size: str = "half"
    zero: bool = True
    smooth: bool = True
    beside: str = ""  # where this key was written and a key of the plot was not, that one is 0
    markers: bool = False  # measured now and then, not at every step


DRIFT = "Drift"
_FULL: dict[str, Any] = {"shares": True, "full": True}
_PROBE: dict[str, Any] = {"size": "third", "markers": True, "smooth": False}
IMITATION = "Imitation"  # the section of sft and rft
SECTIONS: dict[str, tuple[Plot, ...]] = {
    "Learning": (
        Plot("Return", {"return/mean": "mean return"}),
        Plot("Success by task type", {"success/": ""}, "Share of the training episodes solved, by task type.", **_FULL),
    ),
    "Entropy": (
        Plot("Entropy by part of the response",
             {"entropy/token": "all tokens", "entropy/think": "thought", "entropy/action": "action",
              "entropy/other": "the rest"},
             "Mean entropy of the next-token distribution over all response tokens, in thoughts, in actions, and in "
             "the rest: tags, stray text and thoughts that were never closed."),
        Plot("Start and end of an episode",
             {"entropy/first10": "first ten tokens", "entropy/last10": "last ten tokens"},
             "Mean entropy of the first and of the last ten response tokens of an episode."),
        Plot("Entropy by turn", {"entropy/turns/": ""}, "Mean response entropy, by turns of an episode."),
        Plot("Entropy by task type", {"entropy/kind/": ""}, "Mean token entropy of the episodes, by task type."),
        Plot("Entropy by outcome", {"entropy/outcome/solved": "solved", "entropy/outcome/failed": "not solved"},
             "Mean token entropy of the episodes that solved their task and of those that did not."),
        Plot("Entropy in a few responses", {"entropy/concentration": "in one response of 20"},
             "Share of all entropy that the twentieth of the responses with most of it holds; high: a few are noise.",
             **_FULL),
        Plot("Surprisal", {"surprisal/token": "surprisal"}),
    ),
    DRIFT: (
        Plot("Forecasts that were right", {"drift/agreement": "right"},
             "Share of the steps so far at which entropy went the way that the update before foretold.",
             smooth=False, **_FULL),
        Plot("Correlation of forecast and drift", {"drift/correlation": "correlation"}, smooth=False),
    ),
    "Likelihood": (
        Plot("Likelihood by outcome",
             {"likelihood/valid": "valid responses", "likelihood/solved": "solved", "likelihood/failed": "not solved"},
             "Mean log-probability of a token: of valid responses, of solved episodes and of the others.", zero=False),
        Plot("Relative surprisal", {"surprisal/relative": "S - H"}, zero=False),
    ),
    "Behaviour": (
        Plot("Valid actions", {"valid_ratio": "valid"}, shares=True, zero=False),
        Plot("Why responses were refused", {"verdict/": ""}, "Share of the turns refused, by reason.",
             shares=True, beside="valid_ratio"),
        Plot("Length of a response",
             {"response/tokens": "whole response", "response/think_tokens": "thought",
              "response/action_tokens": "action"}),
        Plot("Length of a response by outcome",
             {"response/outcome/solved": "solved", "response/outcome/failed": "not solved"},
             "Longer only where the task is not solved: length that brings nothing."),
        Plot("Length of an episode", {"episode/turns": "turns"}),
    ),
    "Degeneracy": (
        Plot("Repetition",
             {"degeneracy/duplication": "sentences said again", "degeneracy/loops": "responses with a loop",
              "degeneracy/repeated_actions": "actions done again"},
             "Shares of the sentences, the responses and the turns.", shares=True),
        Plot("Invented things", {"degeneracy/hallucinated": "hallucinated"}, shares=True),
        Plot("Drift of the length", {"degeneracy/length_drift": "length"}, zero=False),
        Plot("What the judge finds", {"degeneracy/judge": "degenerate"}, markers=True, smooth=False),
    ),
    "Update": (
        Plot("KL divergence", {"kl/k3": "to the reference (k3)", "kl/old": "to the sampler"}, size="third"),
        Plot("Clipped tokens", {"clip/fraction": "clipped"}, shares=True, size="third"),
        Plot("Groups that teach nothing", {"advantage/zero_groups": "equal returns"}, size="third", **_FULL),
        Plot("Gradient norm", {"grad_norm": "norm"}, size="third"),
        Plot("Learning rate", {"lr": "learning rate"}, smooth=False, size="third"),
        Plot("Loss", {"loss/total": "total", "loss/policy": "policy", "loss/kl": "KL"}, zero=False, size="third"),
    ),
    "Methods": (
        Plot("Tokens outside of EPO's band", {"epo/outside": "outside"}, shares=True, size="third"),
        Plot("Weights of AEM", {"aem/weight_min": "smallest", "aem/weight_max": "largest"}, size="third"),
        Plot("SEAL's classifier", {"seal/accuracy": "right"}, size="third", **_FULL),
        Plot("Branching tokens of ActRe", {"actre/branching": "branching"}, shares=True, size="third"),
        Plot("Advantage added by EA", {"ea/added": "added"}, size="third"),
    ),
    "Algorithm": (
        Plot("Groups played and dropped", {"resample/dropped": "dropped", "resample/missing": "missing"}, size="third"),
        Plot("Turns that share their state", {"gigpo/shared": "shared"}, size="third", **_FULL),
        Plot("Size of GiGPO's step part", {"gigpo/step_part": "size"}, size="third"),
        Plot("Responses punished for their length", {"overlong/share": "punished"}, shares=True, size="third"),
        Plot("Punishment of long responses", {"overlong/mean": "mean"}, size="third"),
    ),
    "Probes": (
        Plot("What thinking takes off the entropy", {"probe/delta_h": "ΔH"}, **_PROBE),
        Plot("Entropy of the same actions",
             {"probe/action_entropy": "after thinking", "probe/action_entropy_without": "thoughts left out"},
             "Mean token entropy of the probed actions, with and without the thoughts before them.", **_PROBE),
        Plot("Similarity of hidden states",
             {"probe/similarity/solved": "within solved", "probe/similarity/failed": "within not solved",
              "probe/similarity/between": "between the two"},
             "Mean cosine of the hidden states of two episodes.", zero=False, **_PROBE),
        Plot("Outcome told from hidden states",
             {"probe/accuracy": "linear probe", "probe/majority": "always the more frequent"}, **_FULL, **_PROBE),
        Plot("Interference of gradients",
             {"probe/interference/positive": "positive advantage", "probe/interference/negative": "negative advantage"},
             "c_j, mean over the episodes with positive and with negative advantage.", **_PROBE),
        Plot("Interference, weighted by advantage", {"probe/interference/sum": "sum"}, **_PROBE),
        Plot("Time of the probes", {"probe/seconds": "seconds"}, **_PROBE),
    ),
    "Critic": (
        Plot("What the critic foresees", {"critic/explained": "explained"}, shares=True, zero=False, size="third"),
        Plot("Value that it gives", {"critic/value": "value"}, size="third"),
        Plot("Loss of the critic", {"critic/loss": "loss"}, size="third"),
    ),
    IMITATION: (Plot("Imitation loss", {"sft/loss": "loss"}),),
}  # fmt: skip
_ELSEWHERE = {"success/all"}  # shown in the first chart of the page
_TURNS = "entropy/turns/"


def expand(keys: dict[str, str], written: Iterable[str]) -> dict[str, str]:
    """The keys of a plot that may have numbers, with their names; numbers in keys count as numbers."""
    known = sorted(set(written) - _ELSEWHERE, key=_natural)
    names: dict[str, str] = {}
    for key, name in keys.items():
        if key.endswith("/"):
            these = [one for one in known if one.startswith(key)]
            names |= {one: _turns(one) or one.removeprefix(key).replace("_", " ") for one in these}
        else:
            names[key] = name
    return names


def _natural(key: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() and len(part) < 9 else (-1, part) for part in re.split(r"(\d+)", key)]


def _turns(key: str) -> str:
    """`entropy/turns/4` goes up to the turn before the double of 4."""
    first = key.removeprefix(_TURNS)
    if not key.startswith(_TURNS) or not first.isdigit() or len(first) > 8:
        return ""
    last = 2 * int(first) - 1
    return f"turn {first}" if last == int(first) else f"turns {first} to {last}"
