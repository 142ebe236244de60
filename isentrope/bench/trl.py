"""One GRPO step of 128 household episodes, ours against TRL's GRPOTrainer, in turn in one run, with its split.

    python bench/trl.py [--device cuda] [--episodes 128] [--turns 10] [--response 64] [--model FOLDER]
    python bench/trl.py --tiny                     # a few seconds on a CPU: that it runs

The model has SmolLM2-135M's shape and random weights unless --model says otherwise; responses have a fixed length and
choose actions by chance, so both sides sample the same tokens. On the GPU TRL computes in bfloat16 with bfloat16
weights, without gradient checkpointing: as fast as it goes. If TRL takes too long, --trl-groups lets it play fewer
groups and scales its times up, which flatters it: a part of its time does not depend on the number of conversations.
The bar is 5 times on a GPU. Needs `pip install trl==1.16.0 datasets`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

from isentrope.bench.against_trl import add_sizes, measure, work_of
from isentrope.bench.work import Work, device_named

BAR = 5.0
WORK = Work("smollm2", device="auto", groups=16, group_size=8, turns=10, response=64, context=4096)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser, WORK, steps=2, micro=16)
    parser.add_argument("--tiny", action="store_true", help="a tiny model and few episodes")
    given = parser.parse_args()
    work = replace(work_of(given), device=device_named(given.device))
    if given.tiny:
        work = replace(work, model="tiny", groups=2, group_size=4, turns=3, response=8)
        given.micro, given.steps = 4, 1
    bar = BAR if work.device.startswith("cuda") and not given.tiny else None
    measure("trl", work, given, bar)


if __name__ == "__main__":
    main()
