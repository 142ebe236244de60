"""The model that ships with the package: its size, its tokens, and how it is rebuilt."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from isentrope.config.schema import PolicySettings
from isentrope.models.load import load_folder, new_model
from isentrope.models.policy import Policy
from isentrope.models.sources.find import POCKET
from isentrope.models.sources.pocket import PocketTokens
from isentrope.worlds.household.rooms import FURNITURE, OBJECTS
from tools.pocket_model import batches, build_phrases, pretrain, vocabulary, wanderings


def test_it_is_small_and_loads() -> None:
    assert sum(path.stat().st_size for path in POCKET.iterdir() if path.is_file()) < 10_000_000
    policy = load_folder(POCKET, torch.device("cpu"), "auto")
    built = json.loads((POCKET / "built.json").read_text())
    assert sum(p.numel() for p in policy.module.parameters()) == built["parameters"]
    assert policy.tokenizer.size == 555


def test_the_tokenizer_knows_every_thing_and_place_as_one_token() -> None:
    tokens = PocketTokens.load(POCKET)
    names = {name for table in (*OBJECTS.values(), *FURNITURE.values()) for name in table}
    assert [name for name in sorted(names) if len(tokens.content(f" {name}")) != 1] == []


def test_building_the_vocabulary_is_deterministic_and_never_joins_names() -> None:
    phrases = vocabulary(games=5)
    assert phrases == vocabulary(games=5)
    assert not any(" desk" in phrase and phrase != " desk" and "lamp" not in phrase for phrase in phrases)
    # Joined by hand: "You see a" is the most frequent run; " mug" stands before a number, so it stays alone.
    assert build_phrases(["You see a mug 1"] * 9 + ["You see"] * 9, least=2, joins=2)[-2:] == ["You see", "You see a"]


def test_household_text_is_written_in_few_tokens() -> None:
    tokens = PocketTokens.load(POCKET)
    text = "You arrive at desk 1. On the desk 1, you see a alarmclock 2, a pen 1, and a mug 1."
    pieces = tokens.pieces(tokens.content(text))
    assert b"".join(pieces).decode() == text
    assert pieces[:4] == [b"You arrive at", b" desk", b" 1", b". On the"]
    assert len(pieces) <= 18


def test_pretraining_learns_and_packs_whole_games(tmp_path: Path) -> None:
    tokens = PocketTokens.load(POCKET)
    games = wanderings((0, 6, 5, list(tokens.phrases)))
    batch = next(iter(batches(games, rows=2, width=200, steps=1, device=torch.device("cpu"))))
    torch.testing.assert_close(batch.ids_BT[batch.row_N, batch.col_N], batch.target_N)
    assert bool((batch.positions_BT[batch.row_N, batch.col_N] > 0).all())
    model = new_model(PolicySettings(layers=1, width=32, heads=2), tokens.size, 0)
    policy = Policy(model, tokens, torch.device("cpu"), torch.float32)
    first = pretrain(policy, games, steps=1, rows=2, width=200, rate=3e-3)
    assert pretrain(policy, games, steps=40, rows=2, width=200, rate=1e-2) < 0.8 * first
