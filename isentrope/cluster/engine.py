"""An engine that has its responses sampled by several others, each in a process of its own.

A conversation stays with the sampler that holds its cache; a new one goes to the sampler that has the fewest. A draw is
a function of its uniform number, so whichever sampler answers a request draws the same tokens: when one is lost, what
it was asked goes to another, and the run has lost nothing but time. After each update of the policy every sampler says
what it has of it; one whose weights are not the learner's is renewed before it samples again.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from isentrope.agent.context import continues
from isentrope.cluster.checks import Checks, probe_request
from isentrope.cluster.messages import (
    Answer,
    Ask,
    BadReply,
    Begin,
    Checked,
    Failed,
    Keep,
    Open,
    Renew,
    Reply,
    Tell,
    Told,
    order_to_bytes,
    reply_from_bytes,
)  # fmt: skip
from isentrope.cluster.processes import Processes
from isentrope.cluster.transport import Heard, Link, Transport
from isentrope.cluster.weights import moving_tensors, share, take_apart
from isentrope.config.schema import ClusterSettings, RunConfig
from isentrope.core.engine import SAMPLERS_LOST, Request, Sampled, answers_to
from isentrope.core.errors import EngineError
from isentrope.engines.registry import capabilities, check_installed, check_training
from isentrope.models.policy import Policy

LOG = logging.getLogger("isentrope")
START_SECONDS = 600.0  # for a sampler to import, to make its engine and to be checked
LONGEST_WAIT = 3600.0  # at a time
MOST_TRIES = 5  # samplers that may be lost with the same request
MOST_LOST = 3  # in a row, before anything of it was right: then there is no new one


@dataclass
class Asked:
    """A request, and how far it has come."""

    number: int
    request: Request
    tries: int = 0


@dataclass
class Station:
    """One of the samplers, through all processes that have been it."""

    number: int
    link: Link
    version: int = -1  # of the weights that it is known to have
    asked: dict[int, Asked] = field(default_factory=dict[int, Asked])  # by number
    slots: set[int] = field(default_factory=set[int])  # conversations that it has
    tells: bool = False  # it was asked for its notes
    since: float = field(default_factory=time.monotonic)  # it was last heard, or first waited for
    lost: int = 0  # in a row


OpenTransport = Callable[[int | None, bool], Transport]
"""From the open file of the shared weights, if there is one, and whether samplers need the script that was started."""


class ClusterEngine:
    def __init__(self, policy: Policy, config: RunConfig, open_transport: OpenTransport = Processes) -> None:
        check_training(config)
        check_installed(config)
        self.policy, self.config, self.tokenizer = policy, config, policy.tokenizer
        self._skeleton, tensors = take_apart(policy)
        self._moving = moving_tensors(policy, tensors)
        self._weights = share(policy, tensors, self._moving)
        probe = probe_request(self.tokenizer, config.agent.max_context, config.agent.max_response)
        self._checks = Checks(policy, tensors, self._moving, probe, capabilities(config).exact)
        own_main = config.engine.kind.startswith("__main__:")
        self._transport = open_transport(self._weights.fileno(), own_main)
        self._words = policy.model.head_weight().shape[0]  # perhaps more than the tokenizer has
        self._version = self._numbers = 0
        self._queue: deque[Asked] = deque()
        self._answers: dict[int, Sampled] = {}  # by slot
        self._held: dict[int, list[int]] = {}  # slot -> the tokens of its conversation
        self._notes: dict[int, dict[str, float]] = {}  # by station
        self._happened = dict.fromkeys(SAMPLERS_LOST, 0)
        self._stations: list[Station] = []
        self._closed = False
        try:
            self._stations += [Station(i, self._start()) for i in range(config.cluster.engines)]
            while any(station.version < 0 for station in self._stations):
                self._hear()
        except BaseException:
            self.close()
            raise

    # What an engine does

    def open(self, slots: Sequence[int]) -> None:
        self._forget()
        self._held = {}
        for station in self._stations:
            station.slots = set()
        ready = self._ready() if not slots else self._settled()
        for i, station in enumerate(ready):
            share_of_it = slots[i * len(slots) // len(ready) : (i + 1) * len(slots) // len(ready)]
            station.slots = set(share_of_it)
            self._send(station, Open(tuple(share_of_it)))

    def keep(self, slots: Sequence[int]) -> None:
        kept = set(slots)
        self._queue = deque(asked for asked in self._queue if asked.request.slot in kept)
        for station in self._stations:
            if not station.slots <= kept:
                station.slots &= kept
                station.asked = {n: asked for n, asked in station.asked.items() if asked.request.slot in kept}
                self._send(station, Keep(tuple(sorted(station.slots))))
        self._held = {slot: tokens for slot, tokens in self._held.items() if slot in kept}

    def refresh(self) -> None:
        """Samplers take the weights over while the learner goes on; they are asked nothing before that is checked."""
        self._forget()
        self._version += 1
        self._weights.publish()
        self._checks.renew()
        for station in self._stations:
            station.since = time.monotonic()
            self._send(station, Renew(self._version, whole=station.version < 0))

    def notes(self) -> dict[str, float]:
        """Of each of the samplers' notes the mean, and what has happened to them."""
        self._notes = {}
        for station in self._ready():
            station.tells, station.since = True, time.monotonic()
            self._send(station, Tell(self._version))
        while any(station.tells for station in self._stations):
            self._hear()
        happened, self._happened = self._happened, dict.fromkeys(self._happened, 0)
        told = [notes for notes in self._notes.values() if notes]
        keys = dict.fromkeys(key for notes in told for key in notes)
        means = {key: _mean([notes[key] for notes in told if key in notes]) for key in keys}
        return means | {"samplers": float(len(self._stations)), **{key: float(n) for key, n in happened.items()}}

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._transport.close()
            self._weights.close()

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        return answers_to(requests, self)

    @property
    def waiting(self) -> int:
        return len(self._queue) + sum(len(station.asked) for station in self._stations) + len(self._answers)

    def submit(self, requests: Sequence[Request]) -> None:
        busy = {asked.request.slot for station in self._stations for asked in station.asked.values()}
        busy |= {asked.request.slot for asked in self._queue} | set(self._answers)
        for request in requests:
            if request.slot in busy:
                raise EngineError(f"slot {request.slot} is already being answered: collect its response first")
            busy.add(request.slot)
            self._numbers += 1
            self._queue.append(Asked(self._numbers, request))
        self._dispatch()

    def collect(self) -> dict[int, Sampled]:
        while not self._answers and self.waiting:
            self._hear()
        while self._take(self._transport.hear(0.0)):
            pass
        self._dispatch()
        answers, self._answers = self._answers, {}
        return answers

    # Who answers what

    def _ready(self) -> list[Station]:
        """Those that have the weights of now."""
        return [station for station in self._stations if station.version == self._version]

    def _settled(self) -> list[Station]:
        """The same, when all that are there have said what they have. A new one joins when it is ready."""
        while not self._ready() or any(0 <= station.version < self._version for station in self._stations):
            self._hear()
        return self._ready()

    def _dispatch(self) -> None:
        """Send what waits to the samplers that are to answer it."""
        ready = self._ready()
        if not ready or not self._queue:
            return
        batches: dict[int, list[Asked]] = {}
        while self._queue:
            asked = self._queue.popleft()
            station = self._place(asked.request, ready)
            if not station.asked:
                station.since = time.monotonic()
            station.asked[asked.number] = asked
            batches.setdefault(station.number, []).append(asked)
        for station in ready:
            if batch := batches.get(station.number):
                requests = tuple((asked.number, asked.request) for asked in batch)
                self._send(station, Ask(requests, tuple(sorted(station.slots))))

    def _place(self, request: Request, ready: Sequence[Station]) -> Station:
        """Where its conversation is; a new one goes where the fewest are."""
        slot = request.slot
        home = next((station for station in ready if slot in station.slots), None)
        if home is not None and continues(self._held.get(slot, []), list(request.prompt)):
            return home
        least = min(ready, key=lambda station: (len(station.slots), station.number))
        if home is not None:
            if len(least.slots) + 1 >= len(home.slots):
                return home
            home.slots.discard(slot)
        least.slots.add(slot)
        return least

    def _forget(self) -> None:
        """Nobody waits for what was asked before."""
        self._queue.clear()
        self._answers.clear()
        for station in self._stations:
            station.asked.clear()

    # What samplers say

    def _hear(self) -> None:
        """Wait for one of them, or until one has kept silent for too long; ask those that can be asked."""
        limits = [(station.since + self._patience(station), station) for station in self._stations]
        limit, silent = min(limits, key=lambda pair: pair[0])
        seconds = min(max(0.0, limit - time.monotonic()), LONGEST_WAIT)
        if not self._take(self._transport.hear(seconds)) and time.monotonic() >= limit:
            self._lose(silent, f"kept silent for {self._patience(silent):g} s and was ended")
        self._dispatch()

    def _patience(self, station: Station) -> float:
        if station.version < 0:
            return max(START_SECONDS, self.config.cluster.seconds)
        waited_for = station.asked or station.tells or station.version < self._version
        return self.config.cluster.seconds if waited_for else float("inf")

    def _take(self, heard: Heard | None) -> bool:
        """Whether there was anything."""
        if heard is None:
            return False
        station = next((station for station in self._stations if station.link is heard.link), None)
        if station is None:
            return True  # from one that has been given up
        station.since = time.monotonic()
        if heard.reply is None:
            self._lose(station, heard.words)
            return True
        try:
            self._replied(station, reply_from_bytes(heard.reply))
        except BadReply as error:
            self._lose(station, f"said what it should not and was ended: {error}")
        return True

    def _replied(self, station: Station, reply: Reply) -> None:
        if isinstance(reply, Answer):
            if not 0 < reply.number <= self._numbers:
                raise BadReply(f"an answer to request {reply.number}, which there was not")
            if reply.number in station.asked:  # else nobody waits for it any more
                self._answered(station, station.asked[reply.number], reply)
        elif isinstance(reply, Checked):
            self._checked(station, reply)
        elif isinstance(reply, Told):
            station.tells, self._notes[station.number] = False, reply.notes
        elif isinstance(reply, Failed):
            raise EngineError(f"{station.link.name}: {reply.words}")

    def _answered(self, station: Station, asked: Asked, answer: Answer) -> None:
        request, sampled = asked.request, answer.sampled
        ids: list[int] = sampled.ids.tolist()
        fine = 0 < len(ids) <= len(request.uniforms) and min(ids) >= 0 and max(ids) < self._words
        if not fine and sampled.stop != "error":
            raise BadReply(f"a response of {len(ids)} tokens, or with tokens that do not exist")
        if request.temperature_of is not None:  # a rule may keep what it is told, and its copy there was told it
            for i, entropy in enumerate(answer.told_N.tolist()[: len(ids)]):
                request.temperature_of(ids[:i], entropy)
        del station.asked[asked.number]
        station.lost = 0
        self._held[request.slot] = [*request.prompt, *ids[:-1]]
        self._answers[request.slot] = sampled

    def _checked(self, station: Station, checked: Checked) -> None:
        if 0 <= checked.version < self._version:
            return  # they have changed since, and it will say so of those too
        if checked.version != self._version:
            raise BadReply(f"it has weights of version {checked.version}, and there are {self._version}")
        if station.version < 0 and not checked.whole:
            raise BadReply("it has not said what weights it began with")
        if problem := self._checks.problem(checked):
            self._happened["weights_refused"] += 1
            self._lose(station, f"does not have the learner's weights and was ended: {problem}")
        else:
            station.version = checked.version

    # Samplers that are lost

    def _lose(self, station: Station, words: str) -> None:
        """What it was asked goes to others, and there is a new one in its place."""
        station.link.end()
        station.lost += 1
        self._happened["samplers_lost"] += 1
        self._happened["requests_moved"] += len(station.asked)
        name, moved = station.link.name, list(station.asked.values())
        for asked in moved:
            asked.tries += 1
        station.asked, station.slots, station.tells = {}, set(), False
        self._queue.extendleft(reversed(moved))
        renewed = station.lost < MOST_LOST
        then = "a new one is started" if renewed else f"{MOST_LOST} in a row: there is no new one"
        LOG.warning(f"{name} {words}; {_requests(len(moved))}{then}")
        if renewed:
            station.version, station.link, station.since = -1, self._start(), time.monotonic()
        else:
            self._stations.remove(station)
        if not self._stations:
            raise EngineError(f"no sampler is left. The last, {name}, {words}; use cluster.kind=local to see why")
        if any(asked.tries >= MOST_TRIES for asked in moved):
            raise EngineError(
                f"{MOST_TRIES} samplers were lost with the same request. The last, {name}, {words}; cluster.kind=local "
                "may show why"
            )

    def _start(self) -> Link:
        link = self._transport.start()
        threads = max(1, torch.get_num_threads() // self.config.cluster.engines)
        handles, moving = self._weights.handles(), tuple(self._moving)
        beat = self.config.cluster.seconds / 4
        begin = Begin(self._alone(), self._skeleton, handles, moving, self._version, threads, beat)
        link.send(order_to_bytes(begin, None))
        return link

    def _alone(self) -> RunConfig:
        """The settings for one of several engines on a machine."""
        options = dict(self.config.engine.options)
        if self.policy.device.type == "cuda":
            options["memory"] = float(options.get("memory", 0.4)) / self.config.cluster.engines
        return replace(self.config, cluster=ClusterSettings(), engine=replace(self.config.engine, options=options))

    def _send(self, station: Station, order: Any) -> None:
        station.link.send(order_to_bytes(order, self.tokenizer))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _requests(count: int) -> str:
    if not count:
        return ""
    return f"its {count} request{'s' if count > 1 else ''} go{'es' if count == 1 else ''} to others; "
