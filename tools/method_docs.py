"""Writes the tables of docs/algorithms and docs/methods: `python -m tools.method_docs`.

Tables stand between marks, `<!-- knobs -->` and `<!-- /knobs -->`; the text around them is written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from isentrope.charts.text import filled
from isentrope.cli.method_sheets import Knob, Sheet, glossary_keys, plain_knobs, sheets
from isentrope.config.algorithms import ALGORITHMS
from isentrope.config.load import config_from_table
from isentrope.config.schema import LearnSettings, SftSettings
from isentrope.config.text import value_to_toml
from isentrope.methods.registry import METHODS
from isentrope.metrics.glossary import entry_of, sentence

DOCS = Path(__file__).parents[1] / "docs"
IMITATION = "sft-and-rft"
SHARED = (
    "kl", "kl_estimator", "kl_in", "aggregation", "constant_length", "resample", "resample_by", "overlong",
    "overlong_penalty", "mask_truncated", "epochs", "mini_batches", "old_logprobs", "mismatch", "mismatch_cap",
    "mismatch_limit",
)  # fmt: skip
OPTIMISER = (
    "lr", "warmup", "floor", "weight_decay", "beta1", "beta2", "grad_clip", "micro_tokens", "row_tokens", "max_skips",
    "gradient_checkpointing", "master_weights", "optimiser", "moments", "share_prefixes",
)  # fmt: skip
_EVERYWHERE = (
    "loss/policy",
    "loss/total",
    "ratio/",
    "kl/old",
    "advantage/",
    "grad_norm",
    "lr",
    "update/skipped",
    "update/count",
    "update/tokens",
    "update/dropped_tokens",
    "update/dropped_share",
    "mismatch/logp",
    "mismatch/ratio",
    "mismatch/truncated",
    "mismatch/kl",
)


def imitation_sheet() -> Sheet:
    """sft and rft have a page too; they are commands of their own, no algorithm of `isentrope train`."""
    return Sheet(
        name=IMITATION,
        kind="imitation",
        summary="imitate an expert's games, or the policy's own successes",
        paper="",
        knobs=tuple(plain_knobs(SftSettings, "sft")),
        metrics=("sft/loss", "sft/epoch", "rft/solved", "grad_norm", "lr"),
        page=f"algorithms/{IMITATION}.md",
        command="isentrope sft demo --out runs/warm",
    )


def knob_table(knobs: Iterable[Knob], with_default: bool) -> str:
    """As Markdown. `with_default`: what a setting is here beside what it is elsewhere, in bold where they differ."""
    rows: list[tuple[str, ...]] = []
    for info, value in knobs:
        here = f"`{value}`" if value == info.default else f"**`{value}`**"
        values = (here, f"`{info.default}`") if with_default else (f"`{value}`",)
        rows.append((f"`{info.path}`", *values, info.allowed, info.doc))
    head = ("setting", "here", "default", "allowed", "meaning")
    return _table(head if with_default else (head[0], "default", *head[3:]), rows) if rows else "None."


def metric_table(keys: Iterable[str]) -> str:
    rows = [(f"`{key}`", entry_of(key).unit, sentence(key)) for key in keys]
    return _table(("key", "unit", "meaning"), rows) if rows else "None of its own."


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def preset_table() -> str:
    """What the algorithms are made of, side by side."""
    rows: list[tuple[str, ...]] = []
    for name, algorithm in ALGORITHMS.items():
        learn = config_from_table({"learn": {"algorithm": name}}).learn
        low, high = (learn.loss.options.get(key, 0.2) for key in ("clip_low", "clip_high"))
        clip = f"{low:g} / {high:g}" if learn.loss.kind != "policy_gradient" else "none"
        plain = {key: value for key, value in algorithm.settings.items() if key not in ("advantage", "loss")}
        options = {f"advantage.{key}": value for key, value in learn.advantage.options.items()}
        extras = [
            f"`{key} = {value_to_toml(value)}`"
            for key, value in (options | plain).items()
            if key not in ("kl", "aggregation")
        ]
        extras += ["a critic"] if learn.advantage.kind == "gae" else []
        kl = f"{learn.kl:g} ({learn.kl_estimator})" if learn.kl else "none"
        link = f"[{name}]({name}.md)"
        rows.append((link, learn.advantage.kind, learn.loss.kind, clip, kl, learn.aggregation, ", ".join(extras)))
    return _table(("algorithm", "advantage", "loss", "clip below / above", "KL", "aggregation", "extras"), rows)


def method_table() -> str:
    rows = [
        (f"[{name}]({name}.md)", kind.summary, kind.paper)
        for name, kind in ((name, METHODS.load(name)) for name in METHODS.inside)
    ]
    return _table(("method", "what it does", "paper"), rows)


def blocks() -> dict[str, dict[str, str]]:
    """Page below docs/ -> marker -> what stands there."""
    found: dict[str, dict[str, str]] = {}
    for one in [*sheets().values(), imitation_sheet()]:
        knobs = knob_table(one.knobs, with_default=one.kind == "algorithm")
        found[one.page] = {"knobs": knobs, "metrics": metric_table(one.metrics)}
    shared = [knob for knob in plain_knobs(LearnSettings, "learn") if knob.info.path.removeprefix("learn.") in SHARED]
    everywhere = [key for beginning in _EVERYWHERE for key in glossary_keys(beginning)]
    found["algorithms/README.md"] = {
        "presets": preset_table(),
        "knobs": knob_table(shared, with_default=False),
        "metrics": metric_table(everywhere),
    }
    found["methods/README.md"] = {"methods": method_table()}
    return found


def main() -> None:
    for page, tables in blocks().items():
        path = DOCS / page
        path.write_text(filled(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"wrote the tables of {len(blocks())} pages in {DOCS}")


if __name__ == "__main__":
    main()
