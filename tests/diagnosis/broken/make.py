"""Plays the broken runs and keeps what the doctor reads of each: `python -m tests.diagnosis.broken.make`."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.diagnosis.broken.recorded import record
from tests.diagnosis.broken.runs import BROKEN

HERE = Path(__file__).parent


def command(name: str, out: Path) -> list[str]:
    settings = [part for setting in BROKEN[name].settings for part in ("--set", setting)]
    base = HERE / "base.toml"
    return ["isentrope", "train", str(base), "--out", str(out / name), *settings]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join(BROKEN)}; none: all")
    parser.add_argument("--out", type=Path, required=True, help="folder for the runs")
    options = parser.parse_args()
    for name in options.names or BROKEN:
        subprocess.run([sys.executable, "-m", *command(name, options.out)], check=True)
        record(options.out / name, HERE / "recorded" / f"{name}.json")


if __name__ == "__main__":
    main()
