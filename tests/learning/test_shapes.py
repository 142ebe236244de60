"""Every loss and advantage refuses wrong ranks, unequal lengths and numbers of the wrong kind, and says what it got."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isentrope.core.shapes import expect_vectors
from isentrope.learning import advantages, losses
from isentrope.learning.advantages.gae import gae, whiten
from isentrope.learning.advantages.gigpo import discounted_returns, exact_anchors, similar_anchors, step_advantages
from isentrope.learning.advantages.grpo import grpo
from isentrope.learning.advantages.overlong import overlong_penalty
from isentrope.learning.advantages.reinforce import reinforce
from isentrope.learning.advantages.rloo import rloo
from isentrope.learning.losses.clipped import clipped_loss
from isentrope.learning.losses.kl import kl_estimate
from isentrope.learning.losses.mismatch import mismatch_metrics, mismatch_ratio
from isentrope.learning.losses.policy_gradient import policy_gradient_loss
from isentrope.learning.losses.sequence import mean_log_ratio, sequence_loss
from isentrope.learning.losses.value import value_loss

# name -> (the function of its arrays alone, a letter for each: f numbers, i ids)
ADVANTAGES: dict[str, tuple[Callable[..., Any], str]] = {
    "gae": (lambda r, v, c: gae(r, v, c, 0.9, 0.9), "ffi"),
    "whiten": (whiten, "f"),
    "discounted_returns": (lambda r, e: discounted_returns(r, e, 0.9), "fi"),
    "exact_anchors": (lambda g: exact_anchors(g, ["door"] * 3), "i"),
    "similar_anchors": (lambda g: similar_anchors(g, ["door"] * 3, 0.5), "i"),
    "step_advantages": (step_advantages, "fi"),
    "grpo": (grpo, "fi"),
    "overlong_penalty": (lambda lengths: overlong_penalty(lengths, 8, 2), "i"),
    "reinforce": (reinforce, "f"),
    "rloo": (rloo, "fi"),
}
LOSSES: dict[str, tuple[Callable[..., Any], str]] = {
    "clipped_loss": (lambda p, o, a: clipped_loss(p, o, a, 0.2, 0.2), "fff"),
    "kl_estimate": (lambda p, r: kl_estimate(p, r, "k3"), "ff"),
    "mismatch_ratio": (mismatch_ratio, "ffi"),
    "mismatch_metrics": (lambda t, s, r: mismatch_metrics(t, s, r, 2.0), "fff"),
    "policy_gradient_loss": (policy_gradient_loss, "ff"),
    "mean_log_ratio": (mean_log_ratio, "fi"),
    "sequence_loss": (lambda p, o, a, t: sequence_loss(p, o, a, t, 0.2, 0.2), "fffi"),
    "value_loss": (lambda v, o, r: value_loss(v, o, r, 0.2), "fff"),
}
ALL = {name: (*case, np) for name, case in ADVANTAGES.items()} | {n: (*case, torch) for n, case in LOSSES.items()}
every = pytest.mark.parametrize("name", ALL)


def arrays(kinds: str, library: Any, *shape: int) -> list[Any]:
    return [library.zeros(shape, dtype=library.float32 if kind == "f" else library.int64) for kind in kinds]


@pytest.mark.parametrize(("package", "cases"), [(advantages, ADVANTAGES), (losses, LOSSES)])
def test_none_is_missing_here(package: Any, cases: dict[str, Any]) -> None:
    files = Path(package.__path__[0]).glob("*.py")
    functions = [
        node for file in files for node in ast.parse(file.read_text()).body if isinstance(node, ast.FunctionDef)
    ]
    assert {node.name for node in functions if not node.name.startswith("_")} == set(cases)


@every
def test_vectors_of_one_length_are_taken(name: str) -> None:
    compute, kinds, library = ALL[name]
    compute(*arrays(kinds, library, 3))


@every
@pytest.mark.parametrize("shape", [(), (3, 1), (1, 3)])
def test_other_ranks_are_refused(name: str, shape: tuple[int, ...]) -> None:
    compute, kinds, library = ALL[name]
    with pytest.raises(ValueError, match=r"shapes \w+ \[.*\].*: expected (a vector|vectors of equal length)"):
        compute(*arrays(kinds, library, *shape))


@every
def test_unequal_lengths_are_refused(name: str) -> None:
    compute, kinds, library = ALL[name]
    for place in range(len(kinds)) if len(kinds) > 1 else ():
        for other in (1, 2, 4):  # 1 would be spread over the others
            given = arrays(kinds, library, 3)
            given[place] = arrays(kinds, library, other)[place]
            with pytest.raises(ValueError, match=rf"shapes (?=.*\[3\])(?=.*\[{other}\]).*vectors of equal length"):
                compute(*given)


@every
def test_the_wrong_kind_of_numbers_is_refused(name: str) -> None:
    compute, kinds, library = ALL[name]
    for place, kind in enumerate(kinds):
        wrong = (library.int64, library.int32, library.bool) if kind == "f" else (library.float32, library.bool)
        for dtype in wrong:
            given = arrays(kinds, library, 3)
            given[place] = library.zeros(3, dtype=dtype)
            with pytest.raises(TypeError, match=r"expected (floating-point numbers|integers)"):
                compute(*given)


def test_what_is_said() -> None:
    with pytest.raises(ValueError, match=r"^shapes logp_N \[3\], turn_N \[2\]: expected vectors of equal length"):
        expect_vectors({"turn_N": torch.zeros(2, dtype=torch.int64)}, logp_N=torch.zeros(3))
    with pytest.raises(TypeError, match=r"^advantage_N is of type torch\.int64: expected floating-point numbers"):
        expect_vectors(advantage_N=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"^group_E is of type float64: expected integers"):
        expect_vectors({"group_E": np.zeros(3)})
