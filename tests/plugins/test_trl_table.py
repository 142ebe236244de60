"""The token table of TRL's rows, and what the plug-in refuses: without TRL itself."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.errors import ConfigError, TaskError, TrainError
from isentrope.core.method import Method
from isentrope.core.needs import is_here
from isentrope.learning.tokens import ACTION, OTHER, THINK
from isentrope.methods.registry import make_listed
from isentrope.plugins.table import Rollout, Table, make_batch, make_table, make_window
from isentrope.plugins.trl import checks

WORDS = ("<think>", "hm", "</think>", "<action>", "go", "</action>", "?", "x")


def rollout(mask: list[list[int]], ids: list[list[int]] | None = None, **changes: Any) -> Rollout:
    mask_BT = np.array(mask, dtype=np.bool_)
    numbers = np.arange(mask_BT.size, dtype=np.float32).reshape(mask_BT.shape)
    given: dict[str, Any] = {
        "ids_BT": np.full(mask_BT.shape, 7) if ids is None else np.array(ids), "mask_BT": mask_BT,
        "reward_B": np.zeros(len(mask_BT)), "group_size": 2, "temperature": 1.0, "logp_BT": -numbers,
        "entropy_BT": numbers / 10,
    }  # fmt: skip
    return Rollout(**(given | changes))


def table_of(given: Rollout, solved_at: float = 1.0) -> Table:
    return make_table(given, lambda number: WORDS[number].encode(), ("action",), solved_at)


def test_turns_are_runs_of_ones_and_groups_are_rows_that_follow() -> None:
    table = table_of(rollout([[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [0, 1, 1, 1, 1], [1, 0, 1, 0, 1]]))
    tokens = table.tokens
    assert tokens.episode_N.tolist() == [0, 0, 0, 2, 2, 2, 2, 3, 3, 3]
    assert tokens.group_N.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert tokens.turn_N.tolist() == [0, 0, 1, 2, 2, 2, 2, 3, 4, 5]
    assert tokens.episode_U.tolist() == [0, 0, 2, 3, 3, 3]
    assert tokens.place_U.tolist() == [0, 1, 0, 0, 1, 2]
    assert table.col_N.tolist() == [0, 1, 3, 1, 2, 3, 4, 0, 2, 4]
    assert tokens.logp_N.tolist() == [0, -1, -3, -11, -12, -13, -14, -15, -17, -19]
    assert [table.of(np.array([row])).tolist() for row in range(4)] == [[0, 1, 2], [], [3, 4, 5, 6], [7, 8, 9]]
    assert table.of(np.array([3, 0])).tolist() == [7, 8, 9, 0, 1, 2]


def test_parts_and_outcomes() -> None:
    ids = [[0, 1, 1, 2, 3, 4, 5], [3, 4, 5, 6, 7, 7, 7]]
    rewards = np.array([0.75, np.nan])
    table = table_of(rollout([[1] * 7, [1] * 5 + [0] * 2], ids, reward_B=rewards), 0.75)
    tokens = table.tokens
    assert tokens.part_N.tolist() == [OTHER, THINK, THINK, OTHER, OTHER, ACTION, OTHER] + [OTHER, ACTION] + [OTHER] * 3
    assert tokens.valid_U.tolist() == [True, False]
    assert tokens.success_N.tolist() == [1.0] * 7 + [0.0] * 5
    assert tokens.solved_E.tolist() == [True, False]
    assert tokens.failed_E.tolist() == [False, False]  # nobody could say


def test_numbers_that_are_not_finite_are_left_out_and_turns_stay_whole() -> None:
    given = rollout([[1, 1, 1], [1, 1, 0]])
    assert given.entropy_BT is not None
    given.entropy_BT[0, 1] = np.inf
    table = table_of(given)
    assert table.col_N.tolist() == [0, 2, 0, 1]
    assert table.tokens.turn_N.tolist() == [0, 0, 1, 1]


def test_a_batch_has_the_denominators_of_its_update_and_the_places_of_its_rows() -> None:
    table = table_of(rollout([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]))
    window = make_window(table, np.array([3, 0]), 10.0)  # of an update of two rows: four tokens, three turns
    assert window.chosen.tolist() == [0, 1, 2, 7]
    width, rows = 3, np.array([3])
    inputs = {
        "prompt_ids": torch.zeros(1, width, dtype=torch.long), "prompt_mask": torch.tensor([[0, 1, 1]]),
        "completion_ids": torch.full((1, 4), 7), "completion_mask": torch.tensor([[1, 1, 0, 0]]),
    }  # fmt: skip
    batch = make_batch(table, window, np.arange(8, dtype=np.float32), rows, inputs, torch.full((1, 4), -2.0))
    assert (batch.row_N.tolist(), batch.col_N.tolist(), batch.number_N.tolist()) == ([0], [width + 1], [7])
    assert batch.advantage_N.tolist() == [7.0]
    assert batch.old_logp_N.tolist() == [-2.0]
    assert batch.segments_BT.tolist() == [[-1, 0, 0, 0, 0, -1, -1]]
    assert {mode: float(weight) for mode, weight in batch.weights.items()} == pytest.approx(
        {"token": 1 / 4, "turn": 1 / 2, "sequence": 1 / 3, "episode": 1 / 2, "constant": 1 / 20}
    )


def test_uneven_groups() -> None:
    with pytest.raises(TrainError, match=r"3 completions in groups of 2.*a multiple of num_generations"):
        table_of(rollout([[1], [1], [1]]))


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        ([[1, 0, 1]], "1 rows for 2 completions"),
        ([[1, 0, 1], [1]], r"completion 1 has 2 tokens and a mask of 1.*env_mask"),
        ([[1, 0, 2], [1, 1]], "completion 0 has 2: expected 0 and 1"),
    ],
)
def test_masks_that_are_cut(masks: list[list[int]], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        checks.check_masks([[5, 6, 7], [5, 6]], masks)
    checks.check_masks([[5, 6, 7], [5, 6]], [[1, 0, 1], [0, 0]])
    checks.check_masks([[5, 6, 7]], None)


def test_methods_that_change_the_sampling_are_refused_together() -> None:
    with pytest.raises(ConfigError) as error:
        checks.refuse_sampling(make_listed(["aem", "actre", "higher_temperature"], 10, 0))
    assert "method actre: it changes how responses are sampled (its hook `plan`), and TRL samples" in str(error.value)
    assert "method higher_temperature" in str(error.value)
    assert "GRPOConfig(temperature=...)" in str(error.value)
    assert "aem" not in str(error.value)
    with pytest.raises(ConfigError, match=r"no_think.*in the prompt"):
        checks.refuse_sampling(make_listed(["no_think"], 10, 0))
    checks.refuse_sampling(make_listed(["aem", "ea", "epo", "entropy_bonus", "seal"], 10, 0))


def test_lists_of_methods() -> None:
    class Mine(Method):
        name = "mine"

    made = make_listed(["aem", ("epo", {"coefficient": 0.5}), Mine], 7, 5)
    assert [method.name for method in made] == ["aem", "epo", "mine"]
    assert (made[1].options.coefficient, made[1].steps, made[1].seed) == (0.5, 7, 5)
    for wrong, said in (
        (["aemm"], "unknown method 'aemm'; did you mean aem"),
        ([("epo", {"coeficient": 1.0})], "coefficient"),
        (["aem", ("aem", {"strength": 2.0})], "'aem' is listed twice"),
        ([SimpleNamespace], "expected a subclass of isentrope.Method"),
        ([Mine()], "expected a subclass of isentrope.Method"),
        ([("epo", {"coefficient": -1.0}), "nothing"], "(?s)coefficient.*unknown method 'nothing'"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_listed(wrong, 7, 5)


@pytest.mark.skipif(is_here("trl"), reason="TRL is here")
def test_without_trl_an_error_says_how_to_get_it() -> None:
    with pytest.raises(TaskError, match=r"isentrope.plugins.trl needs the package trl, which is not here.*install"):
        from isentrope.plugins.trl import EntropyGRPOTrainer  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'Trainer'"):
        from isentrope.plugins.trl import Trainer  # noqa: F401


def test_versions() -> None:
    class Whole:
        def _get_per_token_logps_and_entropies(self, model: Any, compute_entropy: bool = False) -> None: ...

    for name in checks.EXTENSION_POINTS:
        if not hasattr(Whole, name):
            setattr(Whole, name, lambda self: None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checks.check_version("1.16.0", Whole)
    with pytest.warns(UserWarning, match=r"TRL 1.17.2 was not tested .*\(tested: 1.16.0\).*goes on"):
        checks.check_version("1.17.2", Whole)
    older = type("Older", (), {name: getattr(Whole, name) for name in checks.EXTENSION_POINTS[1:]})
    with pytest.raises(ConfigError, match=r"TRL 0.20.0: its GRPOTrainer has no _generate,.*pip install 'trl==1.16.\*'"):
        checks.check_version("0.20.0", older)
    Whole._get_per_token_logps_and_entropies = lambda self, model: None
    with pytest.raises(ConfigError, match=r"compute_entropy"):
        checks.check_version("1.16.0", Whole)


def test_settings_that_would_compute_something_else() -> None:
    args = SimpleNamespace(gradient_accumulation_steps=4, steps_per_generation=2, fp16=False)
    with pytest.raises(ConfigError, match=r"steps_per_generation = 2 with gradient_accumulation_steps = 4"):
        checks.refuse_settings(args)
    args.steps_per_generation = 8
    checks.refuse_settings(args)
    args.fp16 = True
    with pytest.raises(ConfigError, match=r"fp16.*bf16"):
        checks.refuse_settings(args)
