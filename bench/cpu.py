"""Ours against TRL's GRPOTrainer: see isentrope/bench/cpu.py, or `python bench/cpu.py --help`."""

import sys
from pathlib import Path

# trl.py beside this file has the name of the library that is measured: this folder must not be searched for it
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from isentrope.bench.cpu import main  # noqa: E402

if __name__ == "__main__":
    main()
