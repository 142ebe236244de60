"""Steps a second on a CPU, ours against TRL's GRPOTrainer on the same work, in turn in one run.

    python bench/cpu.py [--steps 2] [--groups 12] [--turns 18] [--free]
    python bench/cpu.py --model smollm2 --groups 2 --turns 6 --prompt full       # a larger model

A GRPO step in the household world with the sizes of recipes/demo.toml: the same model, games, group size, lengths and
one update. As it stands responses have a fixed length and choose actions by chance, so that both sides sample exactly
the same number of tokens; with --free the model ends its responses and chooses actions itself, and the counts are
compared. Both sides have all cores. Where other programs run, torch's threads wait for each other most of the time:
there give both one thread and count their own time (--threads 1 --own-time).
The bar is 3 times TRL's steps a second. Needs `pip install trl==1.16.0 datasets` beside isentrope.
"""

from __future__ import annotations

import argparse

from isentrope.bench.against_trl import add_sizes, measure, work_of
from isentrope.bench.work import Work

BAR = 3.0
WORK = Work("pocket", groups=12, group_size=8, turns=18, response=24, context=1536, rooms="medium", prompt="brief")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sizes(parser, WORK, steps=2, micro=8)
    given = parser.parse_args()
    measure("cpu", work_of(given), given, BAR)


if __name__ == "__main__":
    main()
