from __future__ import annotations

import csv
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isentrope.analysis.result_table import FORMATS, Cell, ResultTable, TableRow, figure, render
from isentrope.analysis.tables import one_line

HOSTILE = (
    "a | b", "=cmd()", "+1", "-1", "@x", "\t=1", "\r\n=1", "＝1", "50 % \\input{x} $1$ #1 & _ ^ ~", "<script>", "`x`",
    "[a](http://x)", "\x1b[2J", "\u202eabc", "a\nb", "\\", '"', "'", "日本", "\ud800", "",
)  # fmt: skip


def table(name: str = "GRPO", split: str = "seen", kind: str = "pick", note: str = "a note") -> ResultTable:
    cells = {
        f"kind/{kind}": Cell(81.24, None, 70.0, 90.0),
        "all": Cell(77.55, None, 71.04, 83.0),
        "succ": Cell(50.0, 2.04),
        "difference": Cell(-3.2, None, -9.0, 2.61),
    }
    rows = (TableRow(name, 1, 128, cells), TableRow("paper", 0, 0, {"all": Cell(80.4, 2.7)}, True))
    return ResultTable(split, (f"kind/{kind}", "all", "succ", "difference"), rows, (note,))


def test_text() -> None:
    assert render([table()], "text") == (
        "seen\n"
        "\n"
        "row    seeds  games  pick                All       Succ.        Difference\n"
        "-----  -----  -----  ----  -----------------  ----------  ----------------\n"
        "GRPO       1    128  81.2  77.5 [71.0, 83.0]  50.0 ± 2.0  -3.2 [-9.0, 2.6]\n"
        "paper      -      -     -         80.4 ± 2.7           -                 -\n"
        "\n"
        "a note\n"
    )
    assert "81.2 [70.0, 90.0]" in render([table()], "text", intervals=True)


def test_markdown() -> None:
    assert render([table()], "md") == (
        "**seen**, success in percent\n"
        "\n"
        "| row | seeds | games | pick | All | Succ. | Difference |\n"
        "|---|---:|---:|---:|---:|---:|---:|\n"
        "| GRPO | 1 | 128 | 81.2 | 77.5 [71.0, 83.0] | 50.0 ± 2.0 | -3.2 [-9.0, 2.6] |\n"
        "| paper | - | - | - | 80.4 ± 2.7 | - | - |\n"
        "\n"
        "- a note\n"
    )
    both = render([table(), table(split="unseen")], "md")
    assert both.count("| row |") == 2


def test_latex() -> None:
    assert render([table()], "latex") == (
        "% seen\n"
        "% a note\n"
        "\\begin{tabular}{lrrrrrr}\n"
        "\\toprule\n"
        "row & seeds & games & pick & All & Succ. & Difference \\\\\n"
        "\\midrule\n"
        "GRPO & 1 & 128 & 81.2 & 77.5 {[}71.0, 83.0{]} & 50.0 $\\pm$ 2.0 & $-$3.2 {[}$-$9.0, 2.6{]} \\\\\n"
        "paper & -- & -- & -- & 80.4 $\\pm$ 2.7 & -- & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
    )


def test_quotes_in_latex_need_no_package() -> None:
    """\\textquotedbl is not there in LaTeX's own font encoding."""
    text = render([table(name='the "best"')], "latex")
    assert "the ''best''" in text
    assert "textquotedbl" not in text


def test_csv() -> None:
    head, ours, paper = csv.reader(io.StringIO(render([table()], "csv")))
    assert head[:9] == ["split", "row", "seeds", "games", "from paper", "pick", "pick std", "pick low", "pick high"]
    assert ours[:9] == ["seen", "GRPO", "1", "128", "0", "81.2400", "", "70.0000", "90.0000"]
    assert paper[head.index("All") : head.index("All") + 4] == ["80.4000", "2.7000", "", ""]
    assert paper[4] == "1"
    assert ours[head.index("Difference")] == "-3.2000"


def test_json() -> None:
    (found,) = json.loads(render([table()], "json"))
    assert found["split"] == "seen"
    assert found["rows"][0]["cells"]["all"] == {"value": 77.55, "std": None, "low": 71.04, "high": 83.0}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("form", FORMATS)
def test_hostile_names(form: str, name: str) -> None:
    check(form, table(name, name or "s", name, name), len(render([table()], form).splitlines()))


@given(st.text(max_size=20))
def test_any_name(name: str) -> None:
    for form in FORMATS:
        check(form, table(name, name, name, name), len(render([table()], form).splitlines()))


def check(form: str, made: ResultTable, lines: int) -> None:
    """No name breaks out of its place: as many lines and cells as for a harmless one, nothing that acts."""
    text = render([made], form)
    if form == "json":
        json.loads(text)
        return
    assert all(c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs") for c in text)
    assert len(text.split("\n")) - 1 == lines
    text.encode()
    if form == "csv":
        for line in csv.reader(io.StringIO(text)):
            assert len(line) == 5 + 4 * 4
            assert all(not re.match(r"[=+@＝＋－＠]|-(?!\d)", cell) for cell in line)
    if form == "md":
        rows = [line for line in text.splitlines() if line.startswith("|")]
        assert [len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows] == [8] * 4
        assert not re.search(r"(?<!\\)(?:\\\\)*[<`]", text)
    if form == "latex":
        rows = [line for line in text.splitlines() if line.endswith(r" \\")]
        assert [len(re.findall(r"(?<!\\)&", row)) for row in rows] == [6] * 3
        body = [line for line in text.splitlines() if not line.startswith("%")]
        left = re.sub(r"\\text[a-z]+\{\}|\\[{}$&#_%]|\{\[\}|\{\]\}|\$-\$|\$\\pm\$", "", "\n".join(body[3:-2]))
        assert not re.search(r"[\\{}$#_%^~\[\]]", left.replace(r" \\", "").replace(r"\midrule", ""))


def test_one_line() -> None:
    assert one_line(" a\n\tb\x1b[0m\u2028c\u202e ") == "a b [0m c"


def test_two_splits_with_other_columns_in_one_csv() -> None:
    other = table(split="unseen", kind="heat")
    rows = list(csv.reader(io.StringIO(render([table(), other], "csv"))))
    assert {len(row) for row in rows} == {5 + 5 * 4}
    assert rows[3][0] == "unseen"


def test_returns_have_two_decimals_and_zero_no_sign() -> None:
    assert figure(Cell(-0.04), "return", False) == "-0.04"
    assert figure(Cell(-0.001), "return", False) == "0.00"
    assert figure(Cell(0.125, 0.031), "return", False) == "0.12 ± 0.03"
    assert figure(Cell(-0.04), "turns", False) == "0.0"
