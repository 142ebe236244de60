"""Colours, dashes and the style of charts, for pages and for files."""

from __future__ import annotations

import re

from isentrope.charts.chart import COLORS

# light, dark
PALETTE: dict[str, tuple[str, str]] = {
    "paper": ("#faf9f6", "#131519"), "card": ("#ffffff", "#1a1d23"), "ink": ("#1d2126", "#e7e5df"),
    "soft": ("#5d646d", "#9aa1ab"), "rule": ("#e4e1d9", "#2b2f37"), "accent": ("#0f6b62", "#4fc3b3"),
    "good": ("#1b7a4b", "#5fca94"), "bad": ("#b3433a", "#ef8a80"),
    "warm": ("#d9480f", "#ff8a4c"), "cool": ("#3b7fb5", "#7cb8e8"),  # an eruption, its subsidence
    # lines: apart for every common kind of colour blindness (tests/charts/test_colours.py), and by their dashes too
    "s0": ("#167d50", "#4fe3a8"), "s1": ("#e08d19", "#e8961c"), "s2": ("#0023a9", "#5b7bff"),
    "s3": ("#912683", "#dc97f5"), "s4": ("#6c6200", "#f2e78a"), "s5": ("#8a929e", "#98a1ad"),
    "s6": ("#552442", "#d2505f"), "s7": ("#32a8e4", "#b5f0f7"),
}  # fmt: skip

# dash, gap, ...; a dash of nearly no length is a dot
DASHES = ("", "7 5", ".1 4.5", "9 5 .1 5", "14 5", "4 4.5", "9 5 .1 5 .1 5", "3 6.5")

CHART_STYLE = """
.chart{display:block;width:100%;height:auto;font:12px system-ui,sans-serif}
.chart text{fill:var(--soft)}.chart .tick{font-variant-numeric:tabular-nums}
.chart .grid{stroke:var(--rule)}.chart .axis{stroke:var(--soft);stroke-opacity:.55}
.line{fill:none;stroke:var(--c);stroke-width:2.2;stroke-linejoin:round;stroke-linecap:round}
.chart .thin{stroke-width:1;stroke-opacity:.32;stroke-dasharray:none}
.chart .band{fill:var(--c);fill-opacity:.14}
.chart .dot{fill:var(--card);stroke:var(--c);stroke-width:2}
.chart .change{stroke:var(--soft);stroke-dasharray:2 3}
.phase{stroke:none}.phase.eruption{fill:var(--warm);fill-opacity:.13}.phase.subsidence{fill:var(--cool);fill-opacity:.1}
.phase.descent,.phase.top{fill:none}.phase.top.eruption{fill:var(--warm);fill-opacity:.75}
.chart .flag line{stroke:var(--bad);stroke-width:1;stroke-opacity:.7}.chart .flag circle{fill:var(--bad)}
.chart .flag text{fill:var(--card);font-size:9.5px;font-weight:700}
"""


def palette() -> str:
    """The colours as variables, for light and dark; for scripts the dashes too.

    Paper is white: printing asks for the light colours whatever the screen has, and a script that draws for paper gives
    the document the class `printing` meanwhile.
    """
    light, dark = ("".join(f"--{name}:{pair[n]};" for name, pair in PALETTE.items()) for n in (0, 1))
    dashes = "".join(f"--d{number}:{dash or 'none'};" for number, dash in enumerate(DASHES))
    return (
        f":root{{color-scheme:light dark;{light}{dashes}}}"
        f"@media screen and (prefers-color-scheme:dark){{:root:not(.printing){{{dark}}}}}"
    )


def page_chart_style() -> str:
    """The charts' part of a page's style sheet."""
    colours = "".join(f".c{number}{{--c:var(--s{number})}}" for number in range(COLORS))
    return palette() + colours + CHART_STYLE + _dashes()


def plain_chart_style() -> str:
    """The charts' own style in light colours, without variables, which not every SVG viewer knows."""
    body = re.sub(r"(stroke|fill):var\(--c\);?", "", CHART_STYLE)
    for name, pair in PALETTE.items():
        body = body.replace(f"var(--{name})", pair[0])
    for n, colour in enumerate(PALETTE[f"s{number}"][0] for number in range(COLORS)):
        body += f".line.c{n}{{stroke:{colour}}}.band.c{n}{{fill:{colour}}}.dot.c{n}{{stroke:{colour}}}"
    return body + _dashes()


def _dashes() -> str:
    rules = [f".line.c{number}{{stroke-dasharray:{dash}}}" for number, dash in enumerate(DASHES) if dash]
    return "".join(rules) + ".chart .thin{stroke-dasharray:none}"
