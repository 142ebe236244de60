"""The plug-in in runs of TRL that are not as they should be, and in those with adapters, masks and clips."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("trl", reason="needs TRL: pip install -e '.[trl]'")

from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.method import Method
from isentrope.core.types import Metrics, StepTokens
from isentrope.learning.tokens import ACTION, THINK
from isentrope.plugins.trl import EntropyGRPOTrainer
from tests.plugins.trl_lab import Gradients, Talks, Weighing, make_folder, make_trainer, settings, transformers, trl

PAGE = Path(__file__).parents[2] / "docs" / "plugins" / "trl.md"
ALL: list[Any] = ["aem", "ea", ("epo", {"coefficient": 0.05}), "entropy_bonus", ("seal", {"alpha": 0.5}), Weighing]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("llama"))


def run(model: Path, folder: Path, methods: list[Any], rollouts: Any = None, **changes: Any) -> Any:
    args = settings(folder, **changes)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, rollouts or Talks(), methods=methods)
    trainer.train()
    return trainer


def test_methods_and_settings_are_checked_before_anything_is_trained(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="actre: it changes how responses are sampled"):
        make_trainer(EntropyGRPOTrainer, model, settings(tmp_path), Talks(), methods=["aem", "actre"])
    with pytest.raises(ConfigError, match="did you mean epo"):
        make_trainer(EntropyGRPOTrainer, model, settings(tmp_path), Talks(), methods=["eop"])
    args = settings(tmp_path, gradient_accumulation_steps=4, steps_per_generation=2)
    with pytest.raises(ConfigError, match="would mix several rollouts"):
        make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=["aem"])


def test_a_mask_that_is_cut_ends_the_run_with_its_row(model: Path, tmp_path: Path) -> None:
    class Cut(Talks):
        def talk(self, trainer: Any, prompt: str, seed: int) -> dict[str, Any]:
            row = super().talk(trainer, prompt, seed)
            return row | {"env_mask": row["env_mask"][:-1]} if seed == 3 else row

    with pytest.raises(TrainError, match=r"completion 3 has \d+ tokens and a mask of \d+.*of the rollout_func"):
        run(model, tmp_path, ["aem"], Cut())


def test_completions_that_trl_masks_are_no_part_of_the_step(model: Path, tmp_path: Path) -> None:
    """`Talks` never ends with an end token, so TRL masks every completion that does not end with one by chance."""

    class Ended(Talks):
        def talk(self, trainer: Any, prompt: str, seed: int) -> dict[str, Any]:
            row = super().talk(trainer, prompt, seed)
            if seed % 3:
                return row
            row["completion_ids"].append(trainer.processing_class.eos_token_id)
            row["env_mask"].append(1)
            return row

    seen: list[int] = []

    class Sees(Method):
        name = "sees"

        def begin(self, step: int, tokens: StepTokens) -> Metrics:
            seen.append(len({*tokens.episode_N.tolist()}))
            return {}

    trainer = run(model, tmp_path / "some", [*ALL, Sees], Ended(), mask_truncated_completions=True)
    assert seen == [3, 2, 3]  # of eight: of the first rollout those of the seeds 0, 3 and 6
    assert all(map(torch.isfinite, (torch.tensor(log["loss"]) for log in trainer.state.log_history[:-1])))
    seen.clear()
    trainer = run(model, tmp_path / "none", [*ALL, Sees], mask_truncated_completions=True, learning_rate=1e-3)
    assert seen == [0, 0, 0]
    assert all(bool(torch.isfinite(weight).all()) for weight in trainer.model.parameters())


def test_a_pass_without_entropies(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a fused loss."""
    real = trl.GRPOTrainer._get_per_token_logps_and_entropies

    @functools.wraps(real)
    def fused(self: Any, *args: Any, **options: Any) -> Any:
        logps, _, aux = real(self, *args, **options)
        return logps, None, aux

    monkeypatch.setattr(trl.GRPOTrainer, "_get_per_token_logps_and_entropies", fused)
    with pytest.raises(TrainError, match="gave no entropies of its rollout; switch a fused loss off"):
        run(model, tmp_path, ["aem"])
    with pytest.raises(TrainError, match="gave no entropies or no hidden states"):
        run(model, tmp_path, ["entropy_bonus"])
    monkeypatch.setattr(
        trl.GRPOTrainer, "_compute_loss", lambda self, model, inputs: torch.zeros((), requires_grad=True)
    )
    with pytest.raises(TrainError, match="without log-probs and entropies of the tokens, as a fused loss does"):
        run(model, tmp_path, ["entropy_bonus"])


@pytest.mark.parametrize(
    ("methods", "changes", "more"),
    [
        (["entropy_bonus", Weighing], {}, 0),  # terms and weights are made of TRL's own passes
        (ALL, {}, 3 * 2),  # three rollouts of two micro-batches
        (ALL, {"num_iterations": 2}, 0),  # TRL scores the rollout by itself
    ],
)
def test_how_many_forward_passes_it_takes(
    model: Path, tmp_path: Path, methods: list[Any], changes: Any, more: int
) -> None:
    passes: list[int] = []
    for listed in ([], methods):
        args = settings(tmp_path, **changes)
        trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=listed)
        counted: list[int] = []
        trainer.model.model.register_forward_hook(lambda *given, counted=counted: counted.append(1))
        trainer.train()
        passes.append(len(counted))
    assert passes[1] - passes[0] == more


def test_a_method_that_clips(model: Path, tmp_path: Path) -> None:
    used: list[float] = []

    class Clips(Method):
        name = "clips"

        def begin(self, step: int, tokens: StepTokens) -> Metrics:
            self.clip_high = 0.2 + step
            return {}

        def loss(self, batch: Any, stats: Any) -> None:
            used.append(seen.trainer.epsilon_high)

    class Trainer(EntropyGRPOTrainer):
        def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> Any:
            if torch.is_grad_enabled():
                used.append(self.epsilon_high)
            return super()._get_per_token_logps_and_entropies(*args, **options)

    seen = Gradients()
    seen.trainer = make_trainer(Trainer, model, settings(tmp_path), Talks(), methods=[Clips])
    seen.trainer.train()
    assert used == pytest.approx([1.2, 0.2, 1.2, 0.2, 2.2, 0.2, 2.2, 0.2, 3.2, 0.2, 3.2, 0.2])  # during the loss alone
    with pytest.raises(TrainError, match=r"sets clip_high, and loss_type = 'sapo' has none.*dapo"):
        run(model, tmp_path, [Clips], loss_type="sapo")


def test_in_bfloat16_numbers_are_finite_and_near(model: Path, tmp_path: Path) -> None:
    """Autocast: log-probs and states are of lower precision, the terms are not."""
    logs = [run(model, tmp_path, ALL, bf16=bf16).state.log_history[0] for bf16 in (False, True)]
    for key in ("entropy", "loss/epo", "loss/entropy_bonus", "seal/bce", "aem/weight_max"):
        assert logs[1][key] == pytest.approx(logs[0][key], rel=0.05), key


def test_adapters_learn_with_every_method(model: Path, tmp_path: Path) -> None:
    import peft

    lora = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    args = settings(tmp_path, learning_rate=1e-2, beta=0.1)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=ALL, peft_config=lora)
    trainer.train()
    adapters = [weight for name, weight in trainer.model.named_parameters() if "lora_B" in name]
    assert adapters
    assert all(bool(weight.abs().sum() > 0) for weight in adapters)
    last = trainer.state.log_history[-2]
    assert {"aem/weight_max", "ea/added", "epo/history", "loss/epo", "seal/bce", "loss/weighing", "kl"} <= {*last}


def test_trls_own_loop_of_tools_and_environments(model: Path, tmp_path: Path) -> None:
    """What is sampled is fixed; calls, answers, masks and rewards are TRL's. Two turns, the tool's answer between."""
    import datasets
    from trl.chat_template_utils import qwen3_chat_template

    class Dresser:
        def reset(self, **row: Any) -> str:
            self.opened: list[int] = []
            return " Which drawer?"

        def open_drawer(self, number: int) -> str:
            """
            Open a drawer.

            Args:
                number: Which drawer.
            """
            self.opened.append(number)
            return f"drawer {number} is empty"

        def get_reward(self) -> float:
            return float(self.opened == [2])

    class Scripted(EntropyGRPOTrainer):
        def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **more: Any) -> Any:
            said = []
            for row, ids in enumerate(prompt_ids):
                text = "<think>Done.</think><action>stop</action>"
                if "is empty" not in self._tokenizer.decode(ids) and row % 4:
                    call = f'{{"name": "open_drawer", "arguments": {{"number": {1 + row % 2}}}}}'
                    text = f"<tool_call>\n{call}\n</tool_call>"
                said.append([*self._tokenizer.encode(text, add_special_tokens=False), self._tokenizer.eos_token_id])
            return said, None

    seen: list[StepTokens] = []

    class Sees(Method):
        name = "sees"

        def begin(self, step: int, tokens: StepTokens) -> Metrics:
            seen.append(tokens)
            return {}

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(model), padding_side="left")
    tokenizer.chat_template = qwen3_chat_template
    games = datasets.Dataset.from_dict({"prompt": [[{"role": "user", "content": "Look."}]] * 8})
    args = settings(tmp_path, max_steps=1, max_completion_length=400)
    Scripted(
        model=str(model), args=args, train_dataset=games, processing_class=tokenizer, environment_factory=Dresser,
        methods=[*ALL, Sees],
    ).train()  # fmt: skip
    (tokens,) = seen
    assert tokens.place_U.tolist() == [0, 0, 1, 0, 1, 0, 1] * 2  # the first of four called no tool
    assert tokens.solved_E.tolist() == [False, True, False, True] * 2
    texts = [tokenizer.decode(tokens.target_N[tokens.turn_N == turn].tolist()) for turn in range(3)]
    assert [text.startswith("<tool_call>") for text in texts] == [False, True, False]
    assert all(text.endswith(tokenizer.eos_token) and "empty" not in text for text in texts)
    last_N = tokens.turn_N == 2
    parts = [tokenizer.decode(tokens.target_N[last_N & (tokens.part_N == part)].tolist()) for part in (THINK, ACTION)]
    assert ["Done" in parts[0], "stop" in parts[1]] == [True, True]


def test_evaluation_is_left_alone(model: Path, tmp_path: Path) -> None:
    import datasets

    games = datasets.Dataset.from_dict({"prompt": [str(i) for i in range(8)]})
    options: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4}
    args = settings(tmp_path, **options)
    trainer = make_trainer(EntropyGRPOTrainer, model, args, Talks(), methods=ALL, eval_dataset=games)
    trainer.train()
    assert len(trainer.methods[2].history) == 3  # of the training's three rollouts
    evaluated = [log for log in trainer.state.log_history if "eval_loss" in log]
    assert len(evaluated) == 3
    assert not [key for log in evaluated for key in log if "epo/" in key or "aem/" in key]


def test_the_program_of_the_page_runs(model: Path, tmp_path: Path) -> None:
    (program,) = [block for block in re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL) if "train()" in block]
    (tmp_path / "page.py").write_text(program)
    (tmp_path / "model").symlink_to(model)
    ran = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(PAGE.parents[2]), *sys.path])},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert re.search(r"^entropy \d+\.\d+ nats, before: \d+\.\d+$", ran.stdout, re.MULTILINE), ran.stdout[-500:]
