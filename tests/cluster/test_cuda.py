"""A sampler on the learner's card: its weights by CUDA IPC, its tokens those of an engine in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isentrope.cluster.engine import ClusterEngine
from isentrope.config.schema import PolicySettings
from isentrope.engines.registry import make_engine
from isentrope.models.load import load_folder
from isentrope.models.lora import Base, with_adapters
from isentrope.models.policy import Policy
from tests.builders.toy_runs import WARM_MODEL, toy_config
from tests.cluster.test_engine import check_same, play
from tests.models.test_hugging_face import make_folder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


@pytest.fixture(params=["llama", "qwen2", "adapters"])
def policies(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Policy, Policy]:
    """The same policy twice: the native engine changes where a policy's weights lie."""
    folder = make_folder(tmp_path, "llama" if request.param == "adapters" else request.param)
    pair = [load_folder(folder, torch.device("cuda"), "float32") for _ in range(2)]
    if request.param == "adapters":
        pytest.importorskip("peft")
        pair = [with_adapters(one, PolicySettings(lora_rank=2), 0, Base("toy", str(folder))) for one in pair]
    return pair[0], pair[1]


def learn(policy: Policy) -> None:
    """All weights that learn change."""
    names = {name for name, _ in policy.module.named_parameters() if "lora_" in name}
    with torch.no_grad():
        for name, parameter in policy.module.named_parameters():
            if not names or name in names:
                parameter.add_(0.01)


@pytest.mark.parametrize("kind", ["torch", "fast"])
def test_a_sampler_on_the_same_card_has_the_same_weights_after_every_update(
    kind: str, policies: tuple[Policy, Policy]
) -> None:
    ours, theirs = policies
    settings = ("run.device=cuda", f"engine.kind={kind}", "engine.memory=0.05")
    local = make_engine(toy_config(WARM_MODEL, *settings), ours)
    engine = ClusterEngine(theirs, toy_config(WARM_MODEL, *settings, "cluster.kind=processes"))
    try:
        for _ in range(3):
            check_same(play(engine), play(local))  # type: ignore[arg-type]
            for policy in (ours, theirs):
                learn(policy)
            for one in (local, engine):
                one.refresh()
        assert engine.notes()["samplers_lost"] == 0
    finally:
        engine.close()
