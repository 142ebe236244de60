"""Ours against TRL's GRPOTrainer: see isentrope/bench/trl.py, or `python bench/trl.py --help`."""

import sys
from pathlib import Path

# this file has the name of the library it measures: its folder must not be searched for it
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).resolve().parent]

from isentrope.bench.trl import main  # noqa: E402

if __name__ == "__main__":
    main()
