"""Writes docs/metrics.md from the glossary: `python -m tools.glossary_docs`."""

from __future__ import annotations

from pathlib import Path

from isentrope.metrics.glossary import with_parts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

_HEAD = """# Metrics

Made from `isentrope/metrics/glossary.py` by `python -m tools.glossary_docs`; change it there.

A run writes one JSON object per line to `metrics.jsonl`, with `step`, `kind` (`train`, `eval` or `sft`) and the keys
below, and to `timings.jsonl`, which has what the clock says: two equal runs give the same `metrics.jsonl`, byte for
byte. A part in braces stands for any name. A number that could not be measured is left out; one that was not finite
is `null`, and its key stands in the list `nonfinite`.
"""


def page() -> str:
    parts = [_HEAD]
    for source, entries in with_parts().items():
        parts.append(f"## From {source}\n\n| key | unit | meaning |\n|---|---|---|\n")
        parts += [f"| `{entry.key}` | {entry.unit} | {entry.meaning} |\n" for entry in entries]
        parts.append("\n")
    return "\n".join([parts[0], "".join(parts[1:]).rstrip("\n") + "\n"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
