"""ΔH: the same action with its thought in front and without."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from isentrope.core.tokenizer import ChatTokenizer
from isentrope.core.types import Ints, Turn
from isentrope.metrics.probes.think import State, choose_states, delta_h, make_state
from isentrope.models.policy import Policy
from tests.metrics.probes.helpers import episode_of, games, make_turn
from tests.models.helpers import small_policy

RESPONSES = {
    "think_act": "<think>go to 1</think><action>look</action>",
    "act_think": "<action>look</action><think>go to 1</think>",
}


def text_of(tokenizer: ChatTokenizer, ids: Ints) -> str:
    return b"".join(tokenizer.pieces([int(i) for i in ids])).decode()


def state_of(tokenizer: ChatTokenizer, *turns: Turn, order: str = "think_act") -> State:
    state = make_state(episode_of(turns, order=order), len(turns) - 1, tokenizer)
    assert state is not None
    return state


@pytest.mark.parametrize("order", sorted(RESPONSES))
def test_the_two_ways_to_the_same_action(order: str) -> None:
    tokenizer = small_policy().tokenizer
    state = state_of(tokenizer, make_turn(tokenizer, "you see", RESPONSES[order], order), order=order)
    assert text_of(tokenizer, state.with_think) == "you see<think>go to 1</think><action>"
    assert text_of(tokenizer, state.without) == "you see<action>"
    assert text_of(tokenizer, state.action) == "look"


@pytest.mark.parametrize("order", sorted(RESPONSES))
def test_other_tags_and_white_space(order: str) -> None:
    tokenizer, think = small_policy().tokenizer, "<think>go to 1</think>"
    written = {
        "think_act": f"\n{think}\n <search>look 2</search>",
        "act_think": f"\n<search>look 2</search>\n {think}",
    }
    turn = make_turn(tokenizer, "you see", written[order], order, tags=("search", "answer"))
    assert turn.valid
    state = state_of(tokenizer, turn, order=order)
    space = "\n " if order == "think_act" else ""  # as it was sampled
    assert text_of(tokenizer, state.with_think) == f"you see\n{think}{space}<search>"
    assert text_of(tokenizer, state.without) == "you see\n<search>"
    assert text_of(tokenizer, state.action) == "look 2"


@pytest.mark.parametrize("continues", [True, False])
def test_a_turn_that_continues_has_the_conversation_in_front(continues: bool) -> None:
    tokenizer = small_policy().tokenizer
    turns = [make_turn(tokenizer, f"you see {n}", RESPONSES["think_act"], continues=continues) for n in range(3)]
    turns[0] = replace(turns[0], continues=False)
    front = "".join(f"you see {n}{RESPONSES['think_act']}" for n in range(2)) if continues else ""
    assert text_of(tokenizer, state_of(tokenizer, *turns).without) == f"{front}you see 2<action>"


@pytest.mark.parametrize("order", sorted(RESPONSES))
def test_a_token_over_the_edge_of_two_blocks(tmp_path: Path, order: str) -> None:
    """Many tokenizers write `</think><action>` with a token `><`."""
    pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")
    tokenizer = _tokenizer_with_joint_brackets(tmp_path)
    turn = make_turn(tokenizer, "you see", RESPONSES[order], order)
    assert b"><" in tokenizer.pieces([int(i) for i in turn.response_ids])
    state = state_of(tokenizer, turn, order=order)
    assert text_of(tokenizer, state.with_think).endswith("see<think>go to 1</think><action>")
    assert text_of(tokenizer, state.without).endswith("see<action>")
    assert text_of(tokenizer, state.action) == "look"


def _tokenizer_with_joint_brackets(folder: Path) -> ChatTokenizer:
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE

    from isentrope.models.chat.tokenizer import ChatTokens
    from tests.models.test_hugging_face import CHATML

    raw = Tokenizer(BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    specials = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=262, special_tokens=specials, initial_alphabet=alphabet)
    raw.train_from_iterator(["><"] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": specials[1:]})
    fast.chat_template = CHATML
    fast.save_pretrained(folder)
    return ChatTokens.load(folder)


def test_which_responses_count() -> None:
    tokenizer = small_policy().tokenizer
    good = make_turn(tokenizer, "you see", RESPONSES["think_act"])
    silent = make_turn(tokenizer, "you see", "<think></think><action>look</action>")
    wrong = make_turn(tokenizer, "you see", "<think>go to 1</think>")
    refused = replace(good, verdict="inadmissible", action=None)
    bare = make_turn(tokenizer, "you see", "<action>look</action>", "act")
    assert [len(choose_states([episode_of([t])], tokenizer, 9)) for t in (good, silent, wrong, refused, bare)] == [
        1,
        0,
        0,
        0,
        0,
    ]


def test_the_choice_is_spread_and_does_not_depend_on_the_order_of_episodes() -> None:
    tokenizer = small_policy().tokenizer
    episodes = games(tokenizer, groups=6, size=4)
    chosen, again = choose_states(episodes, tokenizer, 8), choose_states(episodes[::-1], tokenizer, 8)
    assert [s.with_think.tolist() for s in chosen] == [s.with_think.tolist() for s in again]
    assert len(chosen) == 8
    assert len({text_of(tokenizer, s.action) for s in chosen}) >= 3  # the action says which game it was
    assert len({s.with_think.tobytes() for s in chosen}) == 8


class Certain(nn.Module):
    """Two words are possible after a thought, four without; eight and sixteen from the second action token on."""

    def __init__(self, thought: int, action: int, words: int) -> None:
        super().__init__()
        self.thought, self.action = thought, action
        self.weight = nn.Parameter(torch.zeros(words, 4))
        for column, count in enumerate((2, 4, 8, 16)):
            self.weight.data[count:, column] = -1e4

    def head_weight(self) -> Tensor:
        return self.weight

    def hidden(self, ids_BT: Tensor, positions_BT: Tensor, segments_BT: Tensor) -> Tensor:
        states = torch.zeros(*ids_BT.shape, 4)
        for b, t in np.ndindex(*ids_BT.shape):
            own = ids_BT[b, : t + 1][segments_BT[b, : t + 1] == segments_BT[b, t]].tolist()
            begun = own[-1] != self.action
            states[b, t, 2 * begun + (self.thought not in own)] = 1
        return states


def test_by_hand() -> None:
    tokenizer = small_policy().tokenizer
    thought, action = tokenizer.answer("<think>")[0], tokenizer.answer("<action>")[0]
    policy = Policy(Certain(thought, action, tokenizer.size), tokenizer, torch.device("cpu"), torch.float32)  # type: ignore[arg-type]
    one = state_of(tokenizer, make_turn(tokenizer, "go", "<think>go to 1</think><action>look</action>"))
    two = state_of(tokenizer, make_turn(tokenizer, "go", "<think>go to 1</think><action>look 1 1</action>"))
    assert [len(one.action), len(two.action)] == [1, 3]
    found = delta_h(policy, [one, two], micro_tokens=64)
    with_think = (math.log(2) + (math.log(2) + 2 * math.log(8)) / 3) / 2
    without = (math.log(4) + (math.log(4) + 2 * math.log(16)) / 3) / 2
    assert found["probe/action_entropy"] == pytest.approx(with_think, rel=1e-5)
    assert found["probe/action_entropy_without"] == pytest.approx(without, rel=1e-5)
    assert found["probe/delta_h"] == pytest.approx(math.log(2), rel=1e-5)
    assert found["probe/states"] == 2


@torch.no_grad()
def naive_entropy(policy: Policy, front: Ints, action: Ints) -> float:
    """One forward pass per token."""
    entropies: list[float] = []
    for k in range(len(action)):
        ids = torch.tensor([[*front.tolist(), *action[:k].tolist()]])
        hidden = policy.model.hidden(ids, torch.arange(ids.shape[1])[None], torch.zeros_like(ids))[0, -1]
        p = torch.softmax(policy.model.head_weight() @ hidden, dim=0)
        entropies.append(float(-sum(float(x) * math.log(float(x)) for x in p if x > 0)))
    return sum(entropies) / len(entropies)


@pytest.mark.parametrize("order", sorted(RESPONSES))
def test_against_one_pass_per_token(order: str) -> None:
    policy = small_policy()
    states = choose_states(games(policy.tokenizer, order=order), policy.tokenizer, 5)
    found = delta_h(policy, states, micro_tokens=100)
    gaps = [naive_entropy(policy, s.without, s.action) - naive_entropy(policy, s.with_think, s.action) for s in states]
    assert found["probe/delta_h"] == pytest.approx(np.mean(gaps), abs=1e-4)
    assert abs(found["probe/delta_h"]) > 0.01


def test_no_states_no_numbers() -> None:
    assert delta_h(small_policy(), [], micro_tokens=64) == {}
