"""TRL's side of the comparison: the same conversations, in the form that its trainer asks for."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from isentrope.bench.against_trl import Compared, compare, rows_of
from isentrope.bench.trl_peer import TrlPeer, missing
from isentrope.bench.work import Ours, Spent, Work
from isentrope.rollout.sampler import InTurn, pick_instances

WORK = Work("pocket", groups=2, group_size=2, turns=4, response=6, rooms="small", prompt="brief")


class Generator:
    """Answers as the trainer's own generation does: a list of tokens for each conversation."""

    def __init__(self) -> None:
        self.asked: list[list[list[int]]] = []

    def _generate_single_turn(self, prompts: Sequence[list[int]], *rest: object) -> tuple[list[list[int]], None]:
        self.asked.append([list(prompt) for prompt in prompts])
        rng = random.Random(len(self.asked))
        return [[rng.randrange(9, 555) for _ in range(WORK.response)] for _ in prompts], None


def played() -> tuple[TrlPeer, Generator, dict[str, list[list[int]]]]:
    peer, generator = TrlPeer(WORK, WORK.config(), 2), Generator()
    instances = pick_instances(InTurn(seed=WORK.seed), peer.world, WORK.groups, 1)
    prompts = [str(instance.index) for instance in instances for _ in range(WORK.group_size)]
    return peer, generator, peer.rollout(prompts, generator)


def test_masks_mark_what_the_model_wrote() -> None:
    peer, generator, out = played()
    for number in range(WORK.episodes):
        first, rest, mask = (out[key][number] for key in ("prompt_ids", "completion_ids", "env_mask"))
        assert len(rest) == len(mask)
        assert sum(mask) == WORK.turns * WORK.response
        assert mask[: WORK.response] == [1] * WORK.response  # what follows the first prompt is the first answer
        assert mask[-1] == 1
        # every turn was asked with the whole conversation so far
        for turn, asked in enumerate(generator.asked):
            conversation = asked[number]
            assert conversation[: len(first)] == first
            assert conversation[len(first) :] == rest[: len(conversation) - len(first)]
            written = sum(mask[: len(conversation) - len(first)])
            assert written == turn * WORK.response
    assert peer.counts[0] == WORK.episodes * WORK.turns * WORK.response


def test_first_prompts_are_ours() -> None:
    _, generator, _ = played()
    ours = Ours(WORK, WORK.config(["run.threads=1"]))
    from isentrope.core.types import RolloutPlan

    episodes = ours.collector.play_groups(1, RolloutPlan("think_act", 1.0))
    ours.close()
    assert [episode.turns[0].context_ids.tolist() for episode in episodes] == generator.asked[0]


def test_ratios_by_hand() -> None:
    compared = Compared([Spent(1, 1, 100, 200), Spent(2, 2, 100, 200)], [Spent(5, 3, 100, 210), Spent(6, 2, 100, 210)])
    assert compared.ratio == pytest.approx(3.0)  # the median of 8 / 2 and 8 / 4
    assert compared.apart == pytest.approx(0.05)
    rows = {row.what: row for row in rows_of(compared, "x", 3.0, WORK)}
    assert rows["x: step"].met
    assert rows["x: rollout"].ratio == pytest.approx(5.5 / 1.5)
    assert rows["x: update"].ratio == pytest.approx(2.5 / 1.5)


@pytest.mark.skipif(bool(missing()), reason=f"TRL is not installed: {missing()}")
def test_the_real_trainer_does_the_same_work(tmp_path: Path) -> None:
    work = Work("tiny", groups=2, group_size=2, turns=2, response=6).with_model_in(tmp_path)
    compared = compare(work, work.config(["run.threads=1"]), 1, 2, threads=1)
    assert compared.ours[0].sampled == compared.theirs[0].sampled == 2 * 2 * 2 * 6
    assert compared.apart < 0.2
