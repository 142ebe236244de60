"""Responses written down for all rows at once, against one list for each row; and after which words a rule is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isentrope.agent.response_format import closing_tags, is_complete
from isentrope.core.engine import Request, Sampled
from isentrope.engines.native.host_state import ASKS, ENDS, HostState, Vocabulary
from isentrope.models.sources.pocket import PocketTokens

TOKENS = PocketTokens([" apple", "look", "n>", "</act", "ion>", "> ", ">x", " \n", "</action>\n", "o</action>"])
EOS = next(iter(TOKENS.eos_ids))
OF = {piece: word for word, piece in enumerate(TOKENS.pieces(range(TOKENS.size)))}
CLOSING = closing_tags("think_act")
TELLING = [
    OF[piece]
    for piece in (b"<action>", b"</action>", b"</think>", b"n>", b"</act", b"ion>", b"> ", b">x", b" \n",
                  b"</action>\n", b"o</action>", b">", b"<", b"/", b" ", b"\n", b" apple")
]  # fmt: skip


def complete(tail: bytes) -> bool:
    return is_complete("think_act", tail)


def test_which_words_a_rule_is_asked_after() -> None:
    vocabulary = Vocabulary(TOKENS, TOKENS.size + 3)  # a head may have more words than there are
    number, other = vocabulary.ending(CLOSING), vocabulary.ending(())
    asked, everywhere = vocabulary.endings[[number, other]]
    assert asked[EOS] == ENDS
    found = {TOKENS.pieces([word])[0] for word in np.flatnonzero(asked == ASKS).tolist()}
    assert found == {b"</action>", b">", b"> ", b"n>", b"ion>", b"</action>\n", b"o</action>"}
    assert (np.delete(everywhere, EOS) == ASKS).all()
    assert vocabulary.ending(CLOSING) == number


@settings(max_examples=300)
@given(st.lists(st.sampled_from(TELLING), min_size=1, max_size=30))
def test_a_response_ends_where_asking_after_every_word_would_end_it(words: list[int]) -> None:
    pieces = TOKENS.pieces(words)
    expected = next((i + 1 for i in range(len(words)) if complete(b"".join(pieces[: i + 1])[-64:])), None)
    host = HostState(8, 32, Vocabulary(TOKENS, TOKENS.size))
    host.begin(3, Request(0, [1, 2], np.zeros(32, dtype=np.float32), 1.0, complete, closings=CLOSING))
    for i, word in enumerate(words):
        values = np.zeros((3, 8), dtype=np.float32)
        values[0] = word
        stops = host.add(np.array([3]), values)
        assert stops == ({3: "tag"} if i + 1 == expected else {})
        if stops:
            return
    assert expected is None


@dataclass
class Rule:
    needs_entropy: bool = False

    def __call__(self, response: Sequence[int], entropy: float) -> float:
        return 0.25 * (len(response) % 3)  # every third is the likeliest word


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_against_lists(seed: int) -> None:
    """Rows begin and end at any time; what is told to a row that is not named does not count."""
    rng = np.random.default_rng(seed)
    host, rows = HostState(6, 8, Vocabulary(TOKENS, TOKENS.size)), dict[int, list[tuple[float, ...]]]()
    temperatures = {0: 1.0, 1: 0.0, 2: 0.7}
    for _ in range(25):
        for row in range(6):
            if row not in rows and rng.random() < 0.4:
                uniforms, rule = np.zeros(rng.integers(1, 9), dtype=np.float32), Rule() if row == 5 else None
                warm = temperatures[row % 3]
                host.begin(
                    row, Request(row + 10, [5] * int(rng.integers(1, 30)), uniforms, warm, complete, rule, CLOSING)
                )
                rows[row] = []
        assert host.rows.tolist() == sorted(rows)
        assert host.slots == {row + 10 for row in rows}
        named = np.array([row for row in sorted(rows) if rng.random() < 0.8], dtype=np.int64)
        for row in named.tolist():
            if row == 5:
                host.warmth[row] = host.next_temperature(row, 0.0)
        values = rng.random((3, 6), dtype=np.float32)
        values[0] = rng.choice([OF[b" apple"], OF[b"</action>"], OF[b">"], EOS], 6, p=[0.7, 0.1, 0.1, 0.1])
        stops = host.add(named, values)
        for row in named.tolist():
            warm = float(host.warmth[row])
            rows[row].append((*values[:, row].tolist(), warm))
            full = len(rows[row]) == len(host.requests[row].uniforms)
            last = {OF[b"</action>"]: "tag", EOS: "eos"}.get(int(values[0, row]), "length" if full else "")
            assert stops.get(row, "") == last
        assert host.longest == max((len(host.requests[r].prompt) + len(rows[r]) for r in rows), default=0)
        for row, stop in stops.items():
            sampled, told = host.end(row, stop), np.array(rows.pop(row), dtype=np.float32).T
            assert sampled.stop == stop
            assert sampled.ids.dtype == np.int32
            found = (sampled.ids, sampled.logprobs, sampled.entropies, sampled.temperatures)
            for mine, expected in zip(found, told, strict=True):
                np.testing.assert_array_equal(mine, expected)


def test_what_was_given_out_is_not_written_over() -> None:
    host = HostState(2, 4, Vocabulary(TOKENS, TOKENS.size))
    request = Request(0, [1], np.zeros(1, dtype=np.float32), 0.5, complete, closings=CLOSING)
    given_out: list[Sampled] = []
    for value, warm in ((0.25, 0.5), (0.75, 2.0)):
        host.begin(1, replace(request, temperature=warm))
        assert host.add(np.array([1]), np.full((3, 2), value, dtype=np.float32)) == {1: "length"}
        given_out.append(host.end(1, "length"))
    assert [one.logprobs.tolist() for one in given_out] == [[0.25], [0.75]]
    assert [one.temperatures.tolist() for one in given_out] == [[0.5], [2.0]]
