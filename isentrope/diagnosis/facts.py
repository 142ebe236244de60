"""The numbers of a run that causes are told by, each named once."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median
from typing import cast

from isentrope.core.errors import RunError
from isentrope.core.stats import Share, share_from
from isentrope.core.types import FAILURES, Episode
from isentrope.diagnosis.evidence import Outcome, differs, episodes_a_step, outcome_of
from isentrope.diagnosis.phases import PhaseDetector
from isentrope.diagnosis.played import Played, played
from isentrope.models.auto import POCKET_RESPONSE, RESPONSE, rates
from isentrope.runs.curves import Curve
from isentrope.runs.folder import Run
from isentrope.runs.log import Record
from isentrope.runs.taught import otherwise_taught, teacher_beside
from isentrope.runs.token_texts import shown_token_texts

HIGH = 0.75  # success that leaves little to rise for
LAST = 5  # numbers in the median of how things are in the end
READ = 4  # stored steps whose episodes are looked at
KNOWN_SIZES = {"pocket": 860_000, "new": 860_000, "smollm2": 135_000_000}


@dataclass(frozen=True)
class Play:
    """What is asked of one stored episode."""

    step: int
    index: int
    group: int
    success: bool
    reward: float  # penalties for invalid turns left out, where the world's own reward ran
    turns: int
    stop: str


class Facts:
    def __init__(self, course: Run, phases: PhaseDetector) -> None:
        self.course, self.phases = course, phases
        self.success = course.curve("success/all")
        self.steps = len(self.success)
        played = episodes_a_step(course)
        self.groups, self.size = played or (0, 0)
        self.lr, self.kl_weight = course.amount("learn.lr"), course.amount("learn.kl")
        self.turn_limit = course.amount("task.max_turns")
        self.own_reward = bool(course.setting("task.reward"))

    # -- helpers

    def mean(self, key: str) -> float | None:
        """Over the whole run; a metric that counts a share and is left out where nothing was counted is zero there."""
        curve = self.course.curve(key)
        return fmean(curve.values) if len(curve) else None

    def share(self, key: str) -> float:
        """The mean share over all training steps; steps that do not name it have none of it."""
        return sum(self.course.curve(key).values) / self.steps if self.steps else 0.0

    def early(self, key: str) -> float:
        """The same over the first fifth of the run."""
        first = self.success.steps[: max(1, min(LAST, self.steps // 5))]
        return sum(self.course.curve(key).at(first).values) / len(first) if first else 0.0

    def of_games(self, count: str) -> float:
        """The share of all games of evaluations that a count is, such as `failures` or `cut/clock`."""
        curves = self.course.curve
        games = sum(sum(curves(f"eval/{split}/games").values) for split in self.course.splits)
        return (
            sum(sum(curves(f"eval/{split}/{count}").values) for split in self.course.splits) / games if games else 0.0
        )

    def late(self, key: str) -> float | None:
        values = self.course.curve(key).tail(LAST).values
        return median(values) if values else None

    # -- what the run said itself

    @cached_property
    def warned(self) -> dict[str, Record]:
        """Its recorded warnings by their names, the last of each."""
        return {str(event.get("name")): event for event in self.course.events if event.get("kind") == "warning"}

    @cached_property
    def other_form(self) -> list[str]:
        """Where it asks for another form than its model was taught, as its warm-up's settings show."""
        teacher = teacher_beside(self.course)
        return otherwise_taught(self.course.config, teacher) if self.course.config else []

    # -- success

    @cached_property
    def outcome(self) -> Outcome | None:
        return outcome_of(self.course, self.success)

    @cached_property
    def evaluated(self) -> dict[str, int]:
        """For each split with two evaluations and more, whether the last is higher (1), lower (-1) or neither."""
        return {split: differs(first, last) for split, (first, last) in self.evaluations.items()}

    @cached_property
    def evaluations(self) -> dict[str, tuple[Share, Share]]:
        found: dict[str, tuple[Share, Share]] = {}
        for split in self.course.splits:
            success, games = self.course.curve(f"eval/{split}/success"), self.course.curve(f"eval/{split}/games")
            if len(success) > 1 and len(games) == len(success) and min(games.values) >= 1:
                shares = [
                    share_from(
                        success.values[at], round(games.values[at]), round(games.values[at]), games.values[at], 0.99
                    )
                    for at in (0, -1)
                ]
                found[split] = (shares[0], shares[1])
        return found

    @cached_property
    def wins(self) -> float:
        """Episodes won in the whole run."""
        return sum(self.success.values) * self.groups * self.size

    @cached_property
    def games_won(self) -> float:
        """Games won in its evaluations."""
        won = 0.0
        for split in self.course.splits:
            success, games = self.course.curve(f"eval/{split}/success"), self.course.curve(f"eval/{split}/games")
            won += sum(a * b for a, b in zip(success.values, games.values, strict=False))
        return won

    @cached_property
    def episodes(self) -> int:
        return self.steps * self.groups * self.size

    @property
    def fine(self) -> bool:
        """Success rose, or there was little left to rise for; an evaluation that rose counts."""
        if self.outcome is None:
            return False
        rose = any(change > 0 for change in self.evaluated.values()) and not any(
            change < 0 for change in self.evaluated.values()
        )
        high = min(self.outcome.start.value, self.outcome.end.value) >= HIGH
        return self.outcome.fine or ((rose or high) and self.outcome.kind not in ("fell", "lost"))

    @property
    def settled(self) -> bool:
        """Success rose, or all was won from the start: then even a policy that hardly moves is no trouble."""
        return self.outcome is not None and self.outcome.fine

    @property
    def sick(self) -> bool:
        """There are episodes enough to say that success fell, or did not rise."""
        return not self.fine and ((self.outcome is not None and self.outcome.told) or self.fell)

    @property
    def fell(self) -> bool:
        fallen = self.outcome is not None and self.outcome.kind in ("fell", "lost")
        return fallen or any(change < 0 for change in self.evaluated.values())

    # -- answers

    @cached_property
    def valid(self) -> Curve:
        return self.course.curve("valid_ratio")

    @cached_property
    def eval_valid(self) -> float | None:
        """The share of valid actions in the first evaluation, before anything was learnt."""
        first = [self.course.curve(f"eval/{split}/valid_ratio") for split in self.course.splits]
        values = [curve.values[0] for curve in first if len(curve) and curve.steps[0] == 0]
        return fmean(values) if values else None

    @cached_property
    def valid_lost(self) -> bool:
        """Valid actions became rarer by a quarter and more of all turns."""
        lost = len(self.valid) >= 4 and self.valid.start - self.valid.end >= 0.25
        return lost or self.eval_valid_lost is not None

    @cached_property
    def eval_valid_lost(self) -> tuple[float, float] | None:
        """The share of valid actions in the first and last evaluation, if it fell by so much."""
        for split in self.course.splits:
            values = self.course.curve(f"eval/{split}/valid_ratio").values
            if len(values) > 1 and values[0] - values[-1] >= 0.25:
                return values[0], values[-1]
        return None

    @cached_property
    def temperature(self) -> float | None:
        from isentrope.diagnosis.remedies import temperature

        return temperature(self.course)

    @cached_property
    def refused_for(self) -> str:
        """The commonest reason for which responses were refused."""
        keys = self.course.keys("verdict/", self.course.of_kind("train"))
        shares = {key.removeprefix("verdict/"): self.share(key) for key in keys}
        return max(shares, key=lambda reason: shares[reason]) if shares else ""

    @cached_property
    def usual_response(self) -> int:
        """agent.max_response as `auto` has it."""
        return POCKET_RESPONSE if self.pocket else RESPONSE

    @cached_property
    def pocket(self) -> bool:
        return 0 < self.parameters < 5_000_000

    # -- updates

    @cached_property
    def parameters(self) -> int:
        """Of the model; 0: not known."""
        recorded = self.course.about.get("parameters")
        if isinstance(recorded, int) and recorded > 0:
            return recorded
        return KNOWN_SIZES.get(str(self.course.setting("policy.model", "")), 0)

    @cached_property
    def fitting_rate(self) -> float | None:
        """The learning rate that fits a model of its size; None where the size is not known."""
        adapters = bool(self.course.amount("policy.lora_rank"))
        return rates(self.parameters, adapters)[0] if self.parameters else None

    @cached_property
    def rate(self) -> float | None:
        """The highest learning rate that was used: it may have been warmed up for the whole run."""
        used = [value for value in self.course.curve("lr").values if value > 0]
        return max(used) if used else self.lr

    @property
    def times_rate(self) -> float | None:
        """The learning rate over the one that fits."""
        return self.rate / self.fitting_rate if self.rate and self.fitting_rate else None

    @cached_property
    def rounds(self) -> bool:
        """Weights are bfloat16 without float32 copies, so that small updates are rounded away."""
        asked = [self.course.setting(name) for name in ("run.weights", "run.dtype")]
        held = next((value for value in asked if value != "auto"), "auto")  # auto: as run.dtype computes
        return held == "bfloat16" and self.course.setting("learn.master_weights") is False

    @cached_property
    def distance(self) -> float | None:
        """Nats a token to the policy of the beginning, in the end (kl/k3); None where no KL term measured it."""
        return self.late("kl/k3")

    @cached_property
    def farthest(self) -> float:
        return max(
            (
                median(self.course.curve("kl/k3").values[i : i + 3])
                for i in range(max(0, self.steps - 2))
                if self.course.curve("kl/k3").values[i : i + 3]
            ),
            default=0.0,
        )

    @cached_property
    def jumps(self) -> float:
        """What steps move the policy by, those that move it most: the second highest kl/old."""
        moved = sorted(self.course.curve("kl/old").values)
        return moved[-2] if len(moved) > 1 else 0.0

    @property
    def wrecked(self) -> bool:
        """A rate far over what fits has taken the policy far from where it began: what it answers now tells nothing of
        what it knew."""
        return (self.times_rate or 0.0) >= 5 and self.farthest >= 0.5

    @cached_property
    def unmoved(self) -> bool:
        """The policy is where it began, though it had groups to learn from and a rate that was warm."""
        if self.steps < 4 or self.equal >= 0.8 or self.distance is None:
            return False
        warm = (self.course.amount("learn.warmup") or 0.0) * (self.course.amount("run.steps") or 0.0)
        if self.steps < 10:
            return self.distance < 1e-5 and self.steps - warm >= 3
        return self.distance < 3e-4 and (self.steps - warm >= 5 or warm >= 50)

    @property
    def stands(self) -> bool:
        """Nothing moves it, so there is nothing to slow down."""
        return self.distance is not None and self.distance < 3e-4

    @cached_property
    def equal(self) -> float:
        """The share of groups whose episodes did equally well."""
        return self.mean("advantage/zero_groups") or 0.0

    @cached_property
    def erupted(self) -> bool:
        return bool(self.phases.eruptions)

    @cached_property
    def entropy(self) -> Curve:
        return self.course.curve("entropy/token")

    # -- episodes

    @cached_property
    def lost_episodes(self) -> float:
        """The share of training episodes that broke, for reasons outside of the policy."""
        total = sum(self.course.curve("failures").values)
        return total / self.episodes if self.episodes else 0.0

    @cached_property
    def failure_kinds(self) -> dict[str, float]:
        kinds = {kind: sum(self.course.curve(f"failures/{kind}").values) for kind in FAILURES}
        return {kind: number for kind, number in kinds.items() if number}

    @cached_property
    def stored(self) -> list[tuple[int, list[Episode]]]:
        """The episodes of a few stored training steps, from the first to the last."""
        steps = [file.step for file in self.course.episode_files if file.split is None]
        few = sorted({steps[round(at * (len(steps) - 1) / (READ - 1))] for at in range(READ)}) if steps else []
        found: list[tuple[int, list[Episode]]] = []
        for step in few:
            try:
                found.append((step, self.course.episodes(step)))
            except RunError:
                continue
        return found

    @cached_property
    def played(self) -> Played:
        """How training games of those steps were played."""
        return played([episode for _, episodes in self.stored for episode in episodes])

    @cached_property
    def judged(self) -> Played:
        """The same of the last evaluation whose episodes are stored."""
        files = [file for file in self.course.episode_files if file.split is not None]
        try:
            return played(self.course.episodes(files[-1].step, files[-1].split) if files else [])
        except RunError:
            return played([])

    @cached_property
    def plays(self) -> list[Play]:
        cost = 0.0 if self.own_reward else self.course.amount("task.invalid_reward") or 0.0
        return [
            Play(
                step, one.index, one.group, one.success,
                one.ret - cost * sum(not turn.valid for turn in one.turns), len(one.turns), one.stop,
            )
            for step, episodes in self.stored
            for one in episodes
            if one.stop not in FAILURES
        ]  # fmt: skip

    @cached_property
    def cut_texts(self) -> list[str]:
        """Responses of the stored steps that were cut for their length, as text."""
        turns = [turn for _, episodes in self.stored for one in episodes for turn in one.turns]
        cut = [turn for turn in turns if turn.verdict == "too_long"][:200]
        texts = shown_token_texts(self.course.path) if cut else None
        return [texts.text(turn.response_ids.tolist()) for turn in cut] if texts else []

    @cached_property
    def asked_tags(self) -> list[str]:
        tags = self.course.setting("agent.action_tags")
        return [str(tag) for tag in cast("list[object]", tags)] if isinstance(tags, list) else ["action"]

    @cached_property
    def begun_well(self) -> float | None:
        """Of those the share that begins in the form that is asked for, without a tag that does not belong to it."""
        thinks = self.course.setting("agent.order", "think_act") == "think_act"
        first = tuple(f"<{tag}>" for tag in (["think"] if thinks else self.asked_tags))
        in_form = [text.lstrip().startswith(first) and not self._strange(text) for text in self.cut_texts]
        return fmean(in_form) if in_form else None

    @cached_property
    def strange_tags(self) -> list[str]:
        """Tags that a quarter of those responses have and that nobody asked for."""
        seen = Counter(tag for text in self.cut_texts for tag in self._strange(text))
        return sorted(tag for tag, times in seen.items() if times >= 0.25 * len(self.cut_texts))

    def _strange(self, text: str) -> set[str]:
        return set(re.findall(r"</?([a-z_]{1,20})>", text)) - {"think", *self.asked_tags}
