from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from isentrope.cli.main import app
from isentrope.core.errors import ConfigError, TrainError
from isentrope.core.method import Method
from isentrope.core.part import Part
from isentrope.learning.tokens import flatten
from isentrope.methods.conformance import same, suite
from isentrope.methods.conformance.lab import STEPS, Lab, tiny_policy
from isentrope.methods.conformance.suite import CHECKS, INSIDE, assert_conforms, find_part, iter_findings
from isentrope.methods.conformance.walk import batches
from tests.methods import broken_parts as broken

HERE = "tests.methods.broken_parts"


def states(kind: type[Part], **table: object) -> dict[str, str]:
    return {finding.name: finding.state for finding in iter_findings(kind, table)}


def failed(kind: type[Part]) -> dict[str, str]:
    return {finding.name: finding.detail for finding in iter_findings(kind) if finding.state == "BROKEN"}


# Our own, and others that are as they should be


@pytest.mark.parametrize("name", INSIDE)
def test_our_own_conform(name: str) -> None:
    kind = find_part(name, {})
    found = {finding.name: finding for finding in iter_findings(kind)}
    assert list(found) == list(CHECKS)
    assert not [finding for finding in found.values() if finding.state == "BROKEN"]
    wanted = "ok" if issubclass(kind, Method) and name != "no_think" else "skip"
    assert found["off is off"].state == wanted
    for check in ("describes itself", "hooks", "inputs", "restart", "order and packing", "metrics"):
        assert found[check].state == "ok"


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("epo", {"penalty": "indicator", "variant": "no_dw"}),
        ("seal", {"groups": "mixed", "label": "advantage", "state": "before"}),
        ("aem", {"leave_out": "falling"}),
        ("actre", {"branching": "entropy", "variant": "no_stage2"}),
        ("gigpo", {"anchor": "similar", "discount": 0.9}),
        ("gae", {"credit": "token"}),
    ],
)
def test_our_own_conform_with_other_options(name: str, table: dict[str, object]) -> None:
    kind = find_part(name, table)
    assert not [name for name, state in states(kind, **table).items() if state == "BROKEN"]


@pytest.mark.parametrize("kind", [broken.Good, broken.GoodLoss, broken.GoodAdvantage])
def test_good_ones_from_outside_conform(kind: type[Part]) -> None:
    assert_conforms(kind)


def test_what_the_good_ones_are_told() -> None:
    method = {finding.name: finding for finding in iter_findings(broken.Good)}
    assert method["gradients"].state == "ok"
    assert method["metrics"].detail == "3 recorded"
    assert method["off is off"].detail.startswith("with coefficient = 0 the run is the same")
    assert method["time"].state == "note"
    loss = {finding.name: finding for finding in iter_findings(broken.GoodLoss)}
    assert loss["plain policy gradient"].detail == "at ratio 1 the gradient is another, on purpose?"
    assert loss["sign of the advantage"].state == "ok"
    advantage = {finding.name: finding for finding in iter_findings(broken.GoodAdvantage)}
    assert advantage["groups"].detail == (
        "equal returns give up to 1; the same number on all returns of a group changes advantages by up to 5"
    )
    assert advantage["gradients"].state == "skip"


# Broken ones: each fails the check that it should and no other

BROKEN: list[tuple[type[Part], str, str]] = [
    (broken.TakenName, "describes itself", "'epo' is that of another method"),
    (broken.NoSummary, "describes itself", "summary is empty"),
    (broken.NoDefaults, "describes itself", "coefficient: missing"),
    (broken.NoDataclass, "describes itself", "expected a dataclass"),
    (broken.NeverOff, "off is off", "without the method in advantage/learnt ("),
    (broken.PlansWhenOff, "off is off", "what `plan` gives"),
    (broken.Raises, "hooks", "method good, hook begin: raised KeyError: 'nothing here'"),
    (broken.TooShort, "hooks", "method good, hook shape: gave ndarray of shape"),
    (broken.NotFinite, "hooks", "method good, hook loss: the loss is not finite"),
    (broken.HasNan, "hooks", "method good, hook shape: an advantage is not finite"),
    (broken.Detached, "gradients", "method good, hook loss: no gradient reaches the policy"),
    (broken.InfiniteGradient, "gradients", "method good, hook loss: the gradient is not finite"),
    (broken.WeighsWithGradient, "hooks", "method good, hook weigh: gave weights with a gradient"),
    (broken.ChangesAdvantages, "inputs", "method good, hook shape: changed advantage_N in place"),
    (broken.ChangesBatch, "inputs", "method good, hook weigh: changed batch.success_N in place"),
    (broken.ForgetsState, "restart", "step 3 is another after a restart: good/seen (3.0 and 1.0)"),
    (broken.OddState, "restart", "state_dict()['seen'] is a int64"),
    (broken.CannotBeSaved, "restart", "method good, hook state_dict: raised OSError: no state"),
    (broken.MeansOverPiece, "order and packing", "micro-batches of 64 tokens, step 1: the gradient is"),
    (broken.LooksAtPlaces, "order and packing", "another order of episodes, step 1: the gradient is"),
    (broken.Undeclared, "metrics", 'put Metric("good/other", "…") into `metrics`'),
    (broken.NoMeaning, "metrics", "good/never: the meaning is empty"),
    (broken.WrongSign, "sign of the advantage", "good advantage become less likely"),
    (broken.OneNumber, "hooks", "loss good_loss, hook per_token: gave Tensor of shape ()"),
    (broken.Remembers, "restart", "step 3 is another after a restart"),
    (broken.FirstCounts, "order and packing", "another order of episodes, step 1"),
    (broken.ChangesTokens, "inputs", "hook estimate: changed tokens.entropy_N in place"),
    (broken.TwoColumns, "hooks", "advantage estimator good_advantage, hook estimate: gave ndarray of shape"),
]


@pytest.mark.parametrize(("kind", "check", "told"), BROKEN, ids=[case[0].__name__ for case in BROKEN])
def test_a_fault_fails_its_own_check_alone(kind: type[Part], check: str, told: str) -> None:
    found = failed(kind)
    assert list(found) == [check], found
    assert told in found[check]


def test_what_cannot_be_told_any_more_is_skipped() -> None:
    found = states(broken.Raises)
    assert found["describes itself"] == "ok"
    assert found["restart"] == found["order and packing"] == found["metrics"] == "skip"
    with pytest.raises(TrainError, match="'good' does not keep the contract\n- hooks: method good, hook begin"):
        assert_conforms(broken.Raises)


# What the checks stand on


@pytest.mark.parametrize("name", ["entropy_bonus", "epo", "ea", "seal", "aem", "actre", "higher_temperature"])
def test_a_method_that_is_on_differs_from_none(name: str) -> None:
    assert same.without(Lab(find_part(name, {}), {}), {})


def test_the_made_up_episodes_have_what_the_checks_need() -> None:
    lab, policy = Lab(broken.Good, {}), tiny_policy()
    for step in range(1, STEPS + 1):
        tokens = flatten(lab.episodes[step])[1]
        pieces = list(batches(lab, step))
        assert len(pieces) > 2
        assert sum(len(piece.number_N) for piece in pieces) == len(tokens.logp_N)
        assert len({piece.segments_BT.shape for piece in pieces}) > 1
        assert any((piece.segments_BT < 0).any() for piece in pieces)
        assert {bool(solved) for solved in tokens.solved_E} == {True, False}
        assert tokens.entropy_N.max() > 2 > 0.5 > tokens.entropy_N.min()
    taken = lab.gradients(lab.make())
    assert all(float(gradient.norm()) > 0 for gradient, _ in taken)
    assert policy.fingerprint() == tiny_policy().fingerprint()


def test_every_hook_is_told_of_in_place_changes_by_its_path() -> None:
    lab = Lab(broken.ChangesBatch, {})
    assert suite.walk(lab).inputs[0].startswith("method good, hook weigh: changed batch.success_N in place")


# The command


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["check-method", *arguments], env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_the_command() -> None:
    done = invoke(f"{HERE}:Good", "--set", "coefficient=0.5")
    assert done.exit_code == 0, done.output
    assert "ok     describes itself       method good: a bonus that grows" in done.stdout
    assert "skip   groups                 it is not an advantage estimator" in done.stdout
    assert "BROKEN" not in done.stdout
    done = invoke(f"{HERE}:Detached")
    assert done.exit_code == 1
    assert "BROKEN gradients              method good, hook loss: no gradient reaches the policy" in done.stdout
    assert done.stdout.count("BROKEN") == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("nowhere:Nothing",), "could not load the method, loss or advantage estimator 'nowhere:Nothing'"),
        ((f"{HERE}:Nobody",), "has no attribute 'Nobody'"),
        ((f"{HERE}:NotAPart",), "expected a subclass of isentrope.Method"),
        (("ep0",), "did you mean epo?"),
        (("epo", "--set", "alpa=1"), "did you mean epo.alpha?"),
        (("epo", "--set", "alpha=x"), "epo.alpha"),
        (("epo", "--set", "method.epo.alpha=1"), "expected option=value"),
        (("epo", "--set", "alpha"), "expected option=value"),
    ],
)
def test_what_cannot_be_loaded(arguments: tuple[str, ...], told: str) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())


def test_options_reach_the_part() -> None:
    with pytest.raises(ConfigError, match=r"did you mean clip\.clip_high"):
        find_part("clip", {"clip_hig": 1})
    found = {finding.name: finding.detail for finding in iter_findings(find_part("aem", {}), {"leave_out": "rising"})}
    assert "not seen" not in found["metrics"]
