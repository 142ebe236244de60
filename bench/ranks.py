"""What each rank of a learner holds, and how long an update takes, on 1, 2 and 4 ranks of this machine's CPUs.

    OMP_NUM_THREADS=1 python -m bench.ranks [--width 256] [--layers 8] [--ranks 1,2,4]

Bytes are those of the tensors, after an update: nothing of the allocator is in them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from isentrope.cluster.group import RankGroup
from isentrope.config.load import load_config
from isentrope.config.schema import RunConfig
from isentrope.learning.group import ALONE, Group
from isentrope.learning.learner import Learner
from isentrope.learning.replica import Replica
from isentrope.models.llama import Llama, Shape
from isentrope.models.policy import Policy
from isentrope.models.sources.pocket import PocketTokens
from tests.builders.episodes import make_episodes

MIB = 2.0**20


def policy_of(width: int, layers: int) -> Policy:
    model = Llama(Shape(vocabulary=4096, width=width, layers=layers, heads=4, kv_heads=4, inner=4 * width))
    model.initialise(torch.Generator().manual_seed(0))
    return Policy(model, PocketTokens(["look"]), torch.device("cpu"), torch.float32)


def held(replica: Replica) -> dict[str, float]:
    optimiser, weights = replica.optimiser, list(replica.policy.module.parameters())
    state = [value for one in optimiser.adam.state.values() for value in one.values() if value.dim()]
    places = {weight.untyped_storage().data_ptr() for weight in weights}
    own = [p for p in optimiser.parameters if p.untyped_storage().data_ptr() not in places]
    return {
        "weights": sum(w.nbytes for w in weights) / MIB,
        "optimiser": sum(one.nbytes for one in [*state, *own]) / MIB,
    }


def work(rank: int, size: int, file: str, width: int, layers: int, told: Any) -> None:
    torch.set_num_threads(1)
    config: RunConfig = load_config(None, ["learn.kl=0", "learn.warmup=0", "methods=[]", "run.device=cpu"])
    group: Group = ALONE if size == 1 else RankGroup(rank, size, file, torch.device("cpu"), 600.0)
    policy = policy_of(width, layers)
    learner = Learner(policy, None, config, (), Replica(policy, None, config, group))
    episodes = make_episodes(0, groups=8, size=4)
    gradients: list[float] = []
    clip = learner.optimiser.masters.clip

    def watched(parameters: Any, limit: float) -> float:
        gradients.append(sum(w.grad.nbytes for w in policy.module.parameters() if w.grad is not None) / MIB)
        return clip(parameters, limit)

    learner.optimiser.masters.clip = watched  # type: ignore[method-assign]
    learner.learn(1, episodes)
    begin = time.perf_counter()
    learner.learn(2, episodes)
    seconds = time.perf_counter() - begin
    told.put((rank, {**held(learner.replica), "gradients": max(gradients), "seconds": seconds}))
    if isinstance(group, RankGroup):
        group.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--ranks", default="1,2,4")
    chosen = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    size_of = sum(p.numel() for p in policy_of(chosen.width, chosen.layers).module.parameters())
    print(f"{size_of / 1e6:.1f} million weights; MiB of each rank, largest of all; seconds of an update")
    for size in map(int, chosen.ranks.split(",")):
        told: Any = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            inputs = (size, str(Path(folder) / "meet"), chosen.width, chosen.layers, told)
            ranks = [context.Process(target=work, args=(rank, *inputs)) for rank in range(size)]
            for one in ranks:
                one.start()
            found = [told.get(timeout=600)[1] for _ in ranks]
            for one in ranks:
                one.join()
        worst = {key: max(one[key] for one in found) for key in found[0]}
        print(f"{size} ranks: " + ", ".join(f"{key} {value:.1f}" for key, value in worst.items()), flush=True)


if __name__ == "__main__":
    main()
