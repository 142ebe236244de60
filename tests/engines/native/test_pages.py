"""Pages: shared where prompts begin alike, never while wrong, and all given back in the end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isentrope.engines.native.host_state import Pages


def admit(pages: Pages, prompt: list[int], answer: int = 1) -> tuple[list[int], int] | None:
    shared = pages.share(prompt)
    more = pages.take(pages.needed(len(prompt) + answer) - len(shared))
    if more is None:
        pages.give(shared)
        return None
    pages.know(prompt, shared + more, len(shared))
    return shared + more, len(shared)


def test_a_case_worked_out_by_hand():
    pages = Pages(count=10, size=2)
    first = admit(pages, [1, 2, 3, 4, 5])
    assert first == ([0, 1, 2], 0)
    assert admit(pages, [1, 2, 3, 4, 6]) == ([0, 1, 3], 2)
    assert admit(pages, [1, 2, 9, 4, 6]) == ([0, 4, 5], 1)  # the third and fourth token hang on other pages
    assert admit(pages, [1, 2, 3, 4]) == ([0, 6, 7], 1)  # its last token has to be read, so its page is its own
    pages.give(first[0])
    assert pages.free == 3  # all but the third are still used by others
    assert admit(pages, [1, 2, 3, 4, 7]) == ([0, 1, 2], 2)


prompts = st.lists(st.integers(0, 1), min_size=1, max_size=12)


@given(st.lists(st.tuples(prompts, st.booleans()), max_size=30))
def test_a_shared_page_always_holds_the_tokens_it_is_shared_for(events: list[tuple[list[int], bool]]):
    """Played against a plain record of what each page was written with."""
    pages, written, held = Pages(count=16, size=2), dict[int, list[int]](), list[list[int]]()
    for prompt, leaves in events:
        if leaves and held:
            pages.give(held.pop(0))
        admitted = admit(pages, prompt)
        if admitted is None:
            continue
        mine, shared = admitted
        for i, page in enumerate(mine):
            if i < shared:
                assert written[page] == prompt[: 2 * (i + 1)]
            else:
                assert not any(page in other for other in held)
                written[page] = prompt[: 2 * (i + 1)]
        held.append(mine)
    for mine in held:
        pages.give(mine)
    assert pages.free == 16
