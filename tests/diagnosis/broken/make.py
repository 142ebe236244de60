"""Plays the broken runs, keeps what the doctor reads of each, and writes the table of docs/doctor.md.

isentrope sft demo --out warm --set run.seed=3 --set run.device=cpu
python -m tests.diagnosis.broken.make --out /tmp/broken --model warm [NAME ...]
python -m tests.diagnosis.broken.make --table
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from isentrope.core.text import sentence
from isentrope.diagnosis.doctor import diagnose
from tests.diagnosis.broken.recorded import record, restore
from tests.diagnosis.broken.runs import BROKEN, HEALTHY

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"


def command(name: str, out: Path, model: str) -> list[str]:
    settings = BROKEN[name].settings if name in BROKEN else HEALTHY[name]
    changes = [part for setting in settings for part in ("--set", setting)]
    base = ["isentrope", "train", str(HERE / "base.toml"), "--out", str(out / name)]
    return [*base, "--set", f"policy.model={model}", *changes]


def first_words(name: str) -> tuple[str, str]:
    """The finding that comes first, and the first sentence of the diagnosis."""
    with TemporaryDirectory() as folder:
        diagnosis = diagnose(restore(RECORDED / f"{name}.json", Path(folder) / name))
    first = next(iter([*diagnosis.causes, *diagnosis.findings]))
    return first.name, sentence(first.claim.split(". ")[0])


def table() -> str:
    """A row a run, of those that are recorded."""
    rows = ["| run | the fault | settings | what the doctor says first |", "|---|---|---|---|"]
    for name, broken in BROKEN.items():
        if not (RECORDED / f"{name}.json").exists():
            continue
        found, said = first_words(name)
        right = "" if found == broken.cause else " **(wrong)**"
        settings = ", ".join(f"`{setting}`" for setting in broken.settings).replace("|", "\\|")
        rows.append(f"| `{name}` | {broken.says} | {settings.replace('tests.diagnosis.broken.', '')} | {said}{right} |")
    for name, settings in HEALTHY.items():
        if not (RECORDED / f"{name}.json").exists():
            continue
        said = first_words(name)[1]
        rows.append(f"| `{name}` | none | {', '.join(f'`{setting}`' for setting in settings)} | {said} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of: {', '.join([*BROKEN, *HEALTHY])}; none: all")
    parser.add_argument("--out", type=Path, default=Path("broken"), help="folder for the runs")
    parser.add_argument("--model", default="warm", help="folder of the warm-up")
    parser.add_argument("--table", action="store_true", help="print the table, from what is recorded")
    options = parser.parse_args()
    if options.table:
        print(table())
        return
    for name in options.names or [*BROKEN, *HEALTHY]:
        if not (options.out / name).exists():
            subprocess.run([sys.executable, "-m", *command(name, options.out, options.model)], check=True)
        record(options.out / name, RECORDED / f"{name}.json")


if __name__ == "__main__":
    main()
