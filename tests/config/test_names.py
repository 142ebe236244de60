"""Names given in the wrong place or written in another way: the error says where they belong."""

from __future__ import annotations

import pytest

from isentrope.config.load import load_config
from isentrope.config.suggest import nearest, other_kind, plain_name
from isentrope.core.errors import ConfigError
from isentrope.methods.options import option_problems


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("learn.algorithm=epo", "epo is a method: --set methods=epo"),
        ("learn.algorithm=SEAL", "seal is a method: --set methods=seal"),
        ("learn.algorithm=entropy-bonus", "entropy_bonus is a method: --set methods=entropy_bonus"),
        ("learn.algorithm=rft", "rft is a command: isentrope rft"),
        ("learn.algorithm=GRPO", "did you mean grpo?"),
        ("learn.algorithm=GiGPO", "did you mean gigpo?"),
        ("learn.algorithm=Dr_GRPO", "did you mean dr_grpo?"),
        ("learn.algorithm=Dr. GRPO", "did you mean dr_grpo?"),
        ("learn.algorithm=grpo-plus", "did you mean grpo_plus?"),
        ("learn.algorithm=GRPO+", "did you mean grpo_plus?"),
        ("learn.loss=epo", "epo is a method: --set methods=epo"),
        ("learn.advantage=dapo", "dapo is an algorithm: --set learn.algorithm=dapo"),
        ("learn.advantage=GRPO", "did you mean grpo?"),
        ("learn.advantage.kind=gigpo-mixed", "did you mean gigpo_mixed?"),
        ("engine=VLLM", "did you mean vllm?"),
        ("methods=ppo", "ppo is an algorithm: --set learn.algorithm=ppo"),
        ("methods=Dr-GRPO", "dr_grpo is an algorithm: --set learn.algorithm=dr_grpo"),
        ("methods=EPO", "did you mean epo?"),
        ("methods=ActRe", "did you mean actre?"),
        ("methods=no-think", "did you mean no_think?"),
        ("methods=Higher Temperature", "did you mean higher_temperature?"),
    ],
)
def test_where_a_name_belongs(change: str, hint: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(None, [change], option_problems)
    assert hint in str(refused.value)
    assert str(refused.value).count(";") == 1, refused.value  # one piece of advice, not two


def test_other_settings_are_not_told_about_algorithms() -> None:
    for change in ("learn.kl_in=epo", "agent.order=ppo"):
        with pytest.raises(ConfigError) as refused:
            load_config(None, [change])
        assert "is a method" not in str(refused.value)
        assert "is an algorithm" not in str(refused.value)


def test_plain_names() -> None:
    assert [plain_name(name) for name in ("Dr. GRPO", "GRPO+", "no-think", "__")] == [
        "dr_grpo", "grpo_plus", "no_think", ""
    ]  # fmt: skip
    assert nearest("LR", ["lr", "kl"]) == "lr"
    assert nearest("", ["lr"]) is None
    assert other_kind("nothing") is None
