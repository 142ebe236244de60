"""Intervals, quantiles and tables have one owner each: nobody else computes or writes them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "isentrope"
STATS, TABLES = Path("core/stats.py"), Path("analysis/tables.py")
FROZEN = "first"  # folder of the claims' first edition, which keeps its own functions, so that its digits stay
TREES = {
    path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.parent.name != FROZEN
}

QUANTILES = {
    "quantile", "quantiles", "nanquantile", "percentile", "nanpercentile", "ppf", "isf", "inv_cdf", "interval",
    "stdtrit", "ndtri", "chdtri", "betaincinv",
}  # fmt: skip
NAMES = ("wilson", "clopper", "bootstrap", "welch", "student", "newcombe", "quantile", "percentile")


def of_statistics(tree: ast.Module) -> list[str]:
    """What only core/stats.py may have: calls that give a quantile, functions named after an interval, scipy."""
    breaches: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in QUANTILES:
            own = node.func.attr == "interval" and not _is_scipys(node.func)
            breaches += [] if own else [f"line {node.lineno}: {ast.unparse(node.func)}"]
        elif isinstance(node, ast.FunctionDef) and any(name in node.name.lower() for name in NAMES):
            breaches.append(f"line {node.lineno}: def {node.name}")
        elif isinstance(node, ast.ClassDef) and node.name == "Interval":
            breaches.append(f"line {node.lineno}: class Interval")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            outer = {name.split(".")[0] for name in names}
            breaches += [f"line {node.lineno}: imports {names}"] if outer & {"scipy", "NormalDist"} else []
    return breaches


def _is_scipys(call: ast.Attribute) -> bool:
    """`scipy.stats.t.interval`; an estimate of ours has an `interval` too, which calls core/stats."""
    return ast.unparse(call.value).startswith(("scipy", "stats"))


MARKS = (r"\begin{tabular}", "<table", "|---", "| ---")


def of_tables(tree: ast.Module) -> list[str]:
    """What only analysis/tables.py may have: the marks of a table in LaTeX, HTML and Markdown, and csv's writers."""
    breaches: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            breaches += [f"line {node.lineno}: {mark}" for mark in MARKS if mark in node.value]
        elif isinstance(node, ast.Attribute) and node.attr in ("writer", "DictWriter"):
            breaches += [f"line {node.lineno}: {ast.unparse(node)}"] if ast.unparse(node.value) == "csv" else []
    return breaches


BELOW = {"config", "instruments", "metrics"}  # packages that may not import analysis/: they write pages of their own


def test_quantiles_and_intervals_are_in_core_stats() -> None:
    breaches = {path: of_statistics(tree) for path, tree in TREES.items() if path != STATS}
    named = {path: lines for path, lines in breaches.items() if lines}
    assert not named, f"{named}: take it from isentrope.core.stats, or put it there"
    assert of_statistics(TREES[STATS])


def test_tables_are_written_by_analysis_tables() -> None:
    breaches = {path: of_tables(tree) for path, tree in TREES.items() if path != TABLES and path.parts[0] not in BELOW}
    named = {path: lines for path, lines in breaches.items() if lines}
    assert not named, f"{named}: write it with isentrope.analysis.tables"
    assert of_tables(TREES[TABLES])


@pytest.mark.parametrize(
    "code",
    [
        "np.quantile(x, 0.5)", "np.percentile(x, 5)", "torch.quantile(x, 0.5)", "x.nanquantile(0.1)", "t.ppf(0.9)",
        "norm.isf(0.1)", "statistics.quantiles(x)", "NormalDist().inv_cdf(0.9)", "stats.t.interval(0.95, 3)",
        "def wilson(a, b): ...", "def _bootstrap_mean(x): ...", "class Interval: ...", "import scipy.stats",
        "from scipy import special", "from statistics import NormalDist",
    ],
)  # fmt: skip
def test_what_the_border_stops(code: str) -> None:
    assert of_statistics(ast.parse(code))


def test_what_it_lets_through() -> None:
    code = "from isentrope.core.stats import quantile\nquantile(x, self.options.quantile)\nestimate.interval(0.95)"
    assert not of_statistics(ast.parse(code + "\nfrom statistics import fmean, median"))
    assert of_tables(ast.parse("csv.writer(out)"))
    assert of_tables(ast.parse("f'<table class={x}>'"))
    assert of_tables(ast.parse("'|---|---|'"))
