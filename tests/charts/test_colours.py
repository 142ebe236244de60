"""Lines can be told apart by people who see colours differently, and by their dashes where colours fail."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from isentrope.charts.style import DASHES, PALETTE, palette, plain_chart_style

# Machado, Oliveira and Fernandes (2009): linear RGB as seen with protanopia, deuteranopia and tritanopia
SEEN = {
    "normal": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
                            [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(colour: str, seen: str) -> np.ndarray:
    f = np.cbrt(XYZ @ np.clip(SEEN[seen] @ linear(colour), 0, 1) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one: str, other: str) -> float:
    a, b = sorted(float((XYZ @ linear(colour))[1]) + 0.05 for colour in (one, other))
    return b / a


def test_the_measure_itself() -> None:
    assert np.allclose(lab("#ffffff", "normal"), [100, 0, 0], atol=0.1)
    assert contrast("#ffffff", "#000000") == pytest.approx(21, abs=0.1)
    red, green = "#c03030", "#4f7a2f"  # apart for most, much the same without the red cones' help
    apart = {seen: float(np.linalg.norm(lab(red, seen) - lab(green, seen))) for seen in ("normal", "deuteranopia")}
    assert apart["normal"] > 60
    assert apart["deuteranopia"] < 25


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("seen", SEEN)
def test_colours_are_apart(scheme: int, seen: str) -> None:
    colours = [PALETTE[f"s{number}"][scheme] for number in range(len(DASHES))]
    seen_as = [lab(colour, seen) for colour in colours]
    for (i, a), (j, b) in combinations(enumerate(seen_as), 2):
        least = 25 if j < 4 else 17  # ten is told apart at a glance; the first four are the most used
        assert np.linalg.norm(a - b) >= least, (colours[i], colours[j])


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_stand_out_from_the_page(scheme: int) -> None:
    for name in ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "bad", "warm"):
        assert contrast(PALETTE[name][scheme], PALETTE["card"][scheme]) >= 2.5, name
    for name in ("ink", "soft"):
        assert contrast(PALETTE[name][scheme], PALETTE["card"][scheme]) >= 4.5, name


def test_dashes_differ() -> None:
    assert len(set(DASHES)) == len(DASHES) == 8


def test_paper_is_white_and_pictures_need_no_variables() -> None:
    assert "@media screen and (prefers-color-scheme:dark)" in palette()
    assert "var(" not in plain_chart_style()
