"""Every key has one sentence, and the page in docs says the same."""

from __future__ import annotations

import re

import pytest

from isentrope.metrics.glossary import GLOSSARY, sentence
from tools.glossary_docs import PAGE, page

ENTRIES = [entry for section in GLOSSARY.values() for entry in section]
WRITTEN_BY_THE_TRAINER = """
step return/mean return/std success/all success/heat episode/turns episode/tokens response/tokens
response/outcome/solved response/outcome/failed response/think_tokens response/action_tokens context/tokens
valid_ratio verdict/no_action stop/turn_limit
entropy/token entropy/think entropy/action entropy/other entropy/response entropy/concentration entropy/turn
entropy/episode entropy/first10 entropy/last10 surprisal/response loss/policy loss/kl loss/total loss/epo kl/k1 kl/k2
kl/k3 kl/old clip/fraction clip/low clip/high ratio/min ratio/max ratio/mean advantage/mean advantage/std
advantage/zero_groups gigpo/shared gigpo/step_part overlong/mean overlong/share
grad_norm lr update/skipped update/count mismatch/logp_mean mismatch/logp_max failures plan/temperature
eval/unseen/success eval/unseen/success/heat eval/unseen/turns eval/unseen/valid_ratio eval/unseen/return
eval/unseen/low eval/unseen/high eval/unseen/games sft/loss sft/epoch rft/solved seconds/rollout
tokens_per_second/update
entropy/turns/8 entropy/kind/heat entropy/outcome/solved entropy/outcome/failed surprisal/token surprisal/relative
likelihood/valid likelihood/solved likelihood/failed degeneracy/duplication degeneracy/loops degeneracy/hallucinated
degeneracy/repeated_actions degeneracy/length_drift degeneracy/judge drift/predicted drift/measured drift/agreement
drift/correlation phase alarm/eruption probe/delta_h probe/action_entropy probe/action_entropy_without
probe/similarity/solved probe/similarity/failed probe/similarity/between probe/accuracy probe/interference/positive
probe/interference/negative probe/interference/sum probe/seconds
"""


@pytest.mark.parametrize("key", WRITTEN_BY_THE_TRAINER.split())
def test_each_key_is_explained_in_one_sentence(key: str) -> None:
    text = sentence(key)
    assert text.endswith(".")
    assert ". " not in text
    assert "{" not in text


def test_names_are_filled_in() -> None:
    assert "unseen games of type heat" in sentence("eval/unseen/success/heat")
    assert sentence("success/all") != sentence("success/heat").replace("heat", "all")


@pytest.mark.parametrize(
    ("key", "near"),
    [("entropy/tokens", "entropy/token"), ("gradnorm", "grad_norm"), ("eval/unseen/sucess", "eval/{split}/success")],
)
def test_an_unknown_key_gives_the_nearest(key: str, near: str) -> None:
    with pytest.raises(KeyError, match=re.escape(repr(near))):
        sentence(key)


@pytest.mark.parametrize("key", ["", "success/", "success/a/b", "success/a b", "eval//success", "seconds/\n", "zzzz"])
def test_near_misses_of_a_pattern_are_unknown(key: str) -> None:
    with pytest.raises(KeyError, match="did you mean"):
        sentence(key)


def test_no_key_stands_twice() -> None:
    assert len({entry.key for entry in ENTRIES}) == len(ENTRIES)


def test_the_docs_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.glossary_docs"
