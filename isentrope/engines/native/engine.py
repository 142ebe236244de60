"""The native engine: the torch engine's work on one GPU, for Llama-shaped models.

Conversations join and leave while others are being answered. The device is always one token ahead of the host: while a
step runs, the host writes down what the step before has drawn. When responses are handed out it is a few tokens ahead,
so that it has work while the host reads them and plays their tasks; what is drawn after a response ends is thrown away.
Responses whose temperatures follow a rule need the host between two tokens; while there are any, nothing runs ahead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isentrope.agent.context import continues
from isentrope.core.engine import Request, Sampled, answers_to
from isentrope.core.errors import EngineError
from isentrope.engines.native.device import PAGE, Device, Drawn, Guessed, Launched
from isentrope.engines.native.drafting import Guesses, PassCost, Plan, longest_guess
from isentrope.engines.native.host_state import Held, HostState, Pages, Vocabulary
from isentrope.engines.native.prefill import Piece, fill
from isentrope.engines.native.sizes import MOST_RECORDED
from isentrope.engines.native.weights import Weights
from isentrope.models.model_adapter import ModelAdapter
from isentrope.models.policy import Policy

PATIENCE = 8  # steps that a request waits for others, so that several are read in one pass
AHEAD = 3  # steps that are under way when responses are handed out
# With guesses a step gives several tokens, and who waits for some of them waits for a good part of a response.
PATIENCE_GUESSING, AHEAD_GUESSING = 2, 2
SHARE, SHARE_GUESSING = 8, 8  # no more are waited for once so large a part of those who are being answered waits


class FastEngine:
    def __init__(
        self, policy: Policy, model: ModelAdapter, rows: int, context: int, memory: float = 0.4, drafts: int = 0
    ) -> None:
        self.policy, self.tokenizer = policy, policy.tokenizer
        self.weights = Weights(model, policy.dtype)
        self._rows, self._context, self._memory = -(-rows // 8) * 8, -(-context // PAGE) * PAGE, memory
        self._vocabulary = Vocabulary(policy.tokenizer, model.head.shape[0])
        self._device: Device | None = None
        self._held: dict[int, Held] = {}  # by slot
        self._queue: deque[tuple[int, Request]] = deque()  # (step at which it came, request)
        self._launched: deque[Launched] = deque()
        self._left: set[int] = set()  # rows that the device does not know yet to be empty
        longest = longest_guess(drafts, model.heads // model.kv_heads)
        self._guesses = Guesses(longest, policy.device, PassCost.of(self.weights)) if longest > 0 else None
        self._guessing = False  # whether the step before was one with guesses
        self._steps = 0
        self._seen = dict.fromkeys(("rows", "steps", "prefills", "read", "held"), 0.0)

    # What an engine does

    def open(self, slots: Sequence[int]) -> None:
        """Begin with these conversations, all empty. Whatever was held before is forgotten."""
        self._drop_all()
        self._held = {slot: Held() for slot in slots}

    def keep(self, slots: Sequence[int]) -> None:
        """Forget every conversation but these, and what others are being answered."""
        kept = set(slots)
        self._queue = deque(item for item in self._queue if item[1].slot in kept)
        if self._device is not None:
            for row in [row for row, request in self._host.requests.items() if request.slot not in kept]:
                self._drop(row)
        for slot in set(self._held) - kept:
            self._forget(slot)

    def refresh(self) -> None:
        """The weights have changed: what was computed with the old ones is forgotten."""
        self.weights.refresh()
        self._drop_all()
        if self._guesses is not None:
            self._guesses.fade()

    def notes(self) -> dict[str, float]:
        seen, self._seen = self._seen, dict.fromkeys(self._seen, 0.0)
        drafts = {} if self._guesses is None else self._guesses.notes()
        if not seen["steps"]:
            return drafts
        prompts = seen["read"] + seen["held"]
        seen |= {"rows": seen["rows"] / seen["steps"], "held": seen["held"] / prompts if prompts else 0.0}
        return seen | drafts

    def state_dict(self) -> dict[str, Any]:
        return {} if self._guesses is None else {"drafts": self._guesses.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if self._guesses is not None and "drafts" in state:
            self._guesses.load_state_dict(state["drafts"])

    def close(self) -> None:
        self._drop_all()
        self._device = None

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return answers_to(requests, self)

    @property
    def waiting(self) -> int:
        return len(self._queue) + (len(self._host.requests) if self._device else 0)

    def submit(self, requests: Sequence[Request]) -> None:
        busy = {request.slot for _, request in self._queue}
        answered: set[int] = self._host.slots if self._device is not None else set()
        for request in requests:
            if not (len(request.prompt) and len(request.uniforms)):
                raise EngineError(f"slot {request.slot}: a request needs a prompt and room for at least one token")
            if len(request.prompt) + len(request.uniforms) > self._context:
                raise EngineError(
                    f"a prompt of {len(request.prompt)} tokens and {len(request.uniforms)} more do not fit into "
                    f"{self._context}: raise agent.max_context"
                )
            if request.slot in busy or request.slot in answered:
                raise EngineError(f"slot {request.slot} is already being answered: collect its response first")
            busy.add(request.slot)
        self._queue.extend((self._steps, request) for request in requests)

    @torch.no_grad()
    def collect(self) -> dict[int, Sampled]:
        """Work until at least one response is complete."""
        done: dict[int, Sampled] = {}
        while not done and self.waiting:
            self._advance(done)
        if self._guesses is not None:
            self._guesses.remember()
        if done:
            self._run_ahead()
        return done

    # One step

    def _advance(self, done: dict[int, Sampled]) -> None:
        if self._queue and (self._device is None or not self._host.requests):
            self._make_room_for(max(len(request.uniforms) for _, request in self._queue))
        if self._should_admit():
            while self._queue and self._admit():
                pass
        self._empty_rows()  # those that no prefill has told the device of
        if self._host.ruled:  # nothing may be under way that the rules have not seen
            self._settle(done)
        rows, ruled = self._host.rows, sorted(self._host.ruled)
        if len(rows) and not done:
            self._decode(rows, ruled, self._plan())
        self._settle(done, ahead=1 if len(rows) and not ruled else 0)

    def _run_ahead(self) -> None:
        """Steps for those who are still being answered, as long as no row can leave its pages: a row of a pass with
        guesses ends by itself."""
        rows = self._host.rows
        if not len(rows) or self._host.ruled:
            return
        self._empty_rows()
        while len(self._launched) < (AHEAD_GUESSING if self._guessing else AHEAD):
            plan = self._plan()
            if plan is None and self._host.room <= self._under_way:  # the next step that is needed has to fit as well
                break
            self._decode(rows, [], plan)

    @property
    def _under_way(self) -> int:
        """Tokens that a row may have from passes whose results are not written down yet."""
        return sum(launched.most for launched in self._launched)

    def _plan(self) -> Plan | None:
        """How the next pass is to guess; None if it is not to."""
        rows = self._host.rows
        if self._guesses is None or not len(rows) or self._host.ruled:
            return None
        unit = self._unit
        return self._guesses.plan(len(rows), unit.size_for(int(rows[-1]) + 1), unit.most_tokens, self._host.total)

    def _empty_rows(self) -> None:
        if self._left:
            self._unit.leave(list(self._left))
            self._left.clear()

    def _settle(self, done: dict[int, Sampled], ahead: int = 0) -> None:
        while len(self._launched) > ahead:
            self._take(self._launched.popleft(), done)

    def _decode(self, rows: NDArray[np.int64], ruled: list[int], plan: Plan | None) -> None:
        self._steps += 1
        self._seen["steps"] += 1
        self._seen["rows"] += len(rows)
        used = int(rows[-1]) + 1
        longest, self._guessing = self._host.longest + 1 + max(1, self._under_way), plan is not None
        if plan is not None:
            most = 1 + max(plan.reach)
            drawn = self._unit.draft(used, longest + most, plan.tokens, plan.reach)
            self._launched.append(Launched(rows, self._host.serial[rows], drawn, most))
            return
        if not ruled:
            self._unit.decode(used, longest, draws=True)
        else:
            asking = self._choose(ruled, None)
            self._warm(ruled)
            logits = self._unit.decode(used, longest, draws=not asking)
            if asking:
                everyone = self._unit.everyone[: logits.shape[0]]
                self._unit.draw(logits, everyone, step=True, commit=False)
                self._choose(asking, self._unit.drawn().wait()[2])
                self._warm(asking)
                self._unit.draw(logits, everyone, step=True, commit=True)
        self._launch(rows)

    def _choose(self, rows: list[int], entropies: NDArray[np.float32] | None) -> list[int]:
        """The next temperatures of rows with a rule. Without entropies: of those whose rules do not ask for them;
        gives the others, at their plan's temperature."""
        asking: list[int] = []
        for row in rows:
            request = self._host.requests[row]
            if entropies is None and request.temperature_of is not None and request.temperature_of.needs_entropy:
                asking.append(row)
                self._host.warmth[row] = request.temperature
            else:
                entropy = 0.0 if entropies is None else float(entropies[row])
                self._host.warmth[row] = self._host.next_temperature(row, entropy)
        return asking

    def _warm(self, rows: list[int]) -> None:
        at = np.array(rows)
        self._unit.warm(at, self._host.warmth[at])

    def _launch(self, rows: NDArray[np.int64]) -> None:
        self._launched.append(Launched(rows, self._host.serial[rows], self._unit.drawn()))

    def _take(self, launched: Launched, done: dict[int, Sampled]) -> None:
        """Write down what a step has drawn."""
        rows = launched.rows[self._host.serial[launched.rows] == launched.serial]
        if isinstance(launched.drawn, Drawn):
            ended = self._host.add(rows, launched.drawn.wait())
        else:
            ended = self._take_runs(rows, launched.drawn)
        for row, stop in ended.items():
            request = self._host.requests[row]
            held = self._held[request.slot]
            sampled = self._host.end(row, stop)
            self._left.add(row)
            # The last token was drawn, but whether it was read is not sure: the next prompt begins with it.
            held.tokens = [*request.prompt, *sampled.ids[:-1].tolist()]
            spare = held.pages[self._pages.needed(len(held.tokens)) :]
            self._pages.give(spare)
            held.pages = held.pages[: len(held.pages) - len(spare)]
            done[request.slot] = sampled
            if self._guesses is not None:
                self._guesses.heard(request.prompt, sampled.ids)

    def _take_runs(self, rows: NDArray[np.int64], guessed: Guessed) -> dict[int, str]:
        assert self._guesses is not None
        values, info = guessed.wait()
        rows = rows[info[4, rows] > 0]  # others had all their tokens already
        match, found, first, count, taken = info[:, rows]
        ended, kept = self._host.add_runs(rows, first, taken, values)
        self._guesses.judged(match, found, count - 1, taken, kept)
        return ended

    # Conversations that join

    def _should_admit(self) -> bool:
        if not self._queue:
            return False
        busy, guessing = len(self._host.requests), self._guessing
        patience, share = (PATIENCE_GUESSING, SHARE_GUESSING) if guessing else (PATIENCE, SHARE)
        return not busy or len(self._queue) >= busy / share or self._steps - self._queue[0][0] >= patience

    def _admit(self) -> bool:
        """Read the prompts of as many waiting requests as rows, pages and one pass have room for; says if of any."""
        free = (row for row in range(self._rows) if row not in self._host.requests)
        pieces: list[Piece] = []
        tokens = 0
        while self._queue and len(self._host.requests) < self._rows:
            request = self._queue[0][1]
            start = self._find_room(request, MOST_RECORDED - tokens if pieces else self._context)
            if start is None:
                break
            self._queue.popleft()
            row = next(free)
            self._host.begin(row, request)
            pieces.append(Piece(row, start, request, self._held[request.slot].pages))
            tokens += len(request.prompt) - start
            self._seen["held"] += start
        if pieces:
            self._read(pieces, tokens)
        elif not self._host.requests:
            self._evict()
        return bool(pieces)

    def _find_room(self, request: Request, most: int) -> int | None:
        """Pages for a prompt and its response. Gives the number of tokens that need not be read; None if that leaves
        more than `most`, if there are not enough pages, or if rows are too short for the response."""
        if len(request.uniforms) > self._unit.rows.uniforms.shape[1]:
            return None  # until nobody is being answered: then longer rows are made
        held = self._held.setdefault(request.slot, Held())
        if not continues(held.tokens, request.prompt):
            shared = self._pages.share(request.prompt)
            self._pages.give(held.pages)
            held.pages, held.tokens = shared, list(request.prompt[: len(shared) * PAGE])
        start = min(len(held.tokens), len(request.prompt) - 1)
        if len(request.prompt) - start > most:
            return None  # before its pages are known: they would be taken for read
        more = self._pages.take(self._pages.needed(len(request.prompt) + len(request.uniforms)) - len(held.pages))
        if more is None:
            return None
        known = len(held.tokens) // PAGE
        held.pages += more
        self._pages.know(request.prompt, held.pages, known)
        return start

    def _read(self, pieces: Sequence[Piece], tokens: int) -> None:
        unit, rows = self._unit, [piece.row for piece in pieces]
        ruled = [row for row in rows if row in self._host.ruled]
        asking = self._choose(ruled, None)
        packet = unit.packet(tokens, len(pieces))
        fill(packet, pieces, self._host.warmth, list(self._left.difference(rows)))
        logits = unit.prefill(packet, draws=not asking)
        self._left.clear()
        if asking:
            last_row = unit.upload(packet.last_row)
            unit.draw(logits, last_row, step=False, commit=False)
            self._choose(asking, unit.drawn().wait()[2])
            self._warm(asking)
            unit.draw(logits, last_row, step=False, commit=True)
        self._seen["read"] += tokens
        self._seen["prefills"] += 1
        self._launch(np.array(rows))

    # Memory

    @property
    def _unit(self) -> Device:
        assert self._device is not None
        return self._device

    def _make_room_for(self, answer: int) -> None:
        """The cache, made when it is first needed, or when responses may be longer than before. Nobody is being
        answered."""
        if self._device is not None and self._device.rows.uniforms.shape[1] >= answer:
            return
        self._device = None  # its memory goes back first
        self._launched.clear()
        self._left.clear()
        a, place = self.weights.model, self.policy.device
        each = 2 * len(a.layers) * a.kv_heads * PAGE * a.head_size * torch.finfo(self.policy.dtype).bits // 8
        pages = self._rows * (self._context // PAGE)
        if place.type == "cuda":
            pages = min(pages, int(self._memory * torch.cuda.mem_get_info(place)[1]) // each)
        if pages < self._context // PAGE:
            raise EngineError(
                f"engine.memory = {self._memory:g} has room for {pages * PAGE} tokens, less than one conversation of "
                f"agent.max_context = {self._context}; raise the one or lower the other"
            )
        answer = min(self._context, max(64, 1 << (answer - 1).bit_length()))  # so that this happens a few times at most
        memory, longest = (self._guesses.memory, self._guesses.longest) if self._guesses is not None else (None, 0)
        self._device = Device(self.weights, self._rows, pages, self._context, answer, place, memory, longest)
        self._pages = Pages(pages, PAGE)
        self._host = HostState(self._rows, answer, self._vocabulary)
        self._held = {slot: Held() for slot in self._held}

    def _forget(self, slot: int) -> None:
        held = self._held.pop(slot)
        if self._device is not None:
            self._pages.give(held.pages)

    def _evict(self) -> None:
        """No request fits, and none is being answered: the longest conversation that waits longest gives its pages."""
        wanted = self._queue[0][1].slot
        others = [slot for slot, held in self._held.items() if held.pages and slot != wanted]
        if not others:
            raise EngineError("the cache has no room for one conversation; raise engine.memory")
        slot = max(others, key=lambda one: len(self._held[one].pages))
        self._forget(slot)
        self._held[slot] = Held()

    def _drop_all(self) -> None:
        self._queue.clear()
        self._launched.clear()
        if self._device is not None:
            for row in self._host.rows.tolist():
                self._drop(row)
            self._pages = Pages(self._pages.count, PAGE)
        self._held = {slot: Held() for slot in self._held}

    def _drop(self, row: int) -> None:
        """Nobody waits for this response any more."""
        self._host.end(row, "error")
        self._left.add(row)
