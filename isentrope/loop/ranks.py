"""A learner on N ranks (cluster.trainers): each in a process of its own, with the weights and its part of the work.

The first rank is the process of the run. It plays, scores, gives credit, writes the run folder; whenever it needs the
weights for that it has all ranks do the same (learning/replica.py). The others have no run folder: they get the model
when they begin, the step's tokens, loss and methods before its updates, and whatever else they are asked with.

    with ranks_of(policy, reference, config) as replica:        # in the first rank
    follow                                                      # what another does
"""

from __future__ import annotations

import io
import pickle
import queue
import shutil
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isentrope.cluster.group import Disconnected, RankGroup
from isentrope.cluster.messages import BadReply, Failed, Working, reply_from_bytes
from isentrope.cluster.processes import LEAVE, Handed, Processes, Speaker
from isentrope.cluster.transport import Link, Transport
from isentrope.cluster.weights import put_together, take_apart
from isentrope.config.schema import RunConfig
from isentrope.core.errors import ConfigError, RankLost, TrainError
from isentrope.core.loss import Loss
from isentrope.core.method import Method
from isentrope.core.types import Floats, StepTokens, Targets
from isentrope.learning.old_logprobs import Mismatch
from isentrope.learning.replica import PARTS, Replica, Updated
from isentrope.learning.tokens import Mask, TokenSequence
from isentrope.models.policy import Policy

START_SECONDS = 300.0  # for another rank to import what it needs
LAST_WORDS = 10.0  # seconds within which a rank that failed has said so
OUT_OF_MEMORY = "use more ranks, a smaller learn.micro_tokens, or learn.gradient_checkpointing=true"


@dataclass(frozen=True)
class Begin:
    """The first thing that a rank is told."""

    rank: int
    config: RunConfig
    file: str  # by which the ranks find each other
    skeleton: bytes  # the policy and its reference, without their weights
    tensors: tuple[tuple[torch.dtype, tuple[int, ...], bool, bool], ...]  # ..., is a parameter, learns
    device: str
    threads: int


@contextmanager
def ranks_of(policy: Policy, reference: Policy | None, config: RunConfig) -> Generator[Replica]:
    """The first rank, while the others are there."""
    check_device(config.cluster.trainers, policy.device)
    kinds = (*config.methods, config.learn.loss.kind, config.learn.advantage.kind)
    own_main = any(kind.startswith("__main__:") for kind in kinds)
    folder = Path(tempfile.mkdtemp(prefix="isentrope-ranks-"))
    transport = Processes(None, own_main, "rank", follow)
    try:
        with Leading(policy, reference, config, transport, folder / "meet") as first:
            shutil.rmtree(folder, ignore_errors=True)  # they have met: whatever ends this process leaves nothing
            yield first
    finally:
        transport.close()
        shutil.rmtree(folder, ignore_errors=True)


def check_device(trainers: int, device: torch.device) -> None:
    if device.type not in ("cpu", "cuda") or device.index:
        raise ConfigError(
            f"run.device = {device} with cluster.trainers = {trainers}: ranks learn on CPUs, or on cards of which each "
            "takes the one of its number; set run.device to cpu or cuda, or cluster.trainers=1"
        )
    cards = torch.cuda.device_count() if device.type == "cuda" else trainers
    if cards < trainers:
        raise ConfigError(
            f"cluster.trainers = {trainers}, and this machine has {cards} card{'s' if cards > 1 else ''}: each rank "
            f"needs one; set cluster.trainers={cards}, or run.device=cpu"
        )


# The first rank


class Leading(Replica):
    """A replica that has the other ranks do what it does."""

    def __init__(
        self, policy: Policy, reference: Policy | None, config: RunConfig, transport: Transport, file: Path
    ) -> None:
        size = config.cluster.trainers
        self._transport = transport
        self._threads = max(1, torch.get_num_threads() // size)
        skeleton, tensors = take_apart(policy, reference)
        told = tuple((t.dtype, tuple(t.shape), isinstance(t, nn.Parameter), t.requires_grad) for t in tensors)
        self._links: list[Link] = []
        for rank in range(1, size):
            link = transport.start()
            link.send(pickle.dumps(Begin(rank, config, str(file), skeleton, told, policy.device.type, self._threads)))
            self._links.append(link)
        self._wait_until_there()
        with self._together():
            group = RankGroup(0, size, str(file), policy.device, config.cluster.seconds)
        self._leave = group.close
        try:
            with self._together():
                group.spread(tensors)
            super().__init__(policy, reference, config, group)
        except BaseException:
            group.close()
            raise

    def __enter__(self) -> Leading:
        return self

    def __exit__(self, *_: Any) -> None:
        for link in self._links:
            link.send(LEAVE)
        self._leave()

    # What all ranks do

    def scores(self, whose: str, sequences: Sequence[TokenSequence], tokens: StepTokens) -> Floats:
        self._tell("scores", whose, sequences, tokens)
        with self._together():
            return super().scores(whose, sequences, tokens)

    def begin(self, tokens: StepTokens, loss: Loss, mismatch: Mismatch, methods: Sequence[Method]) -> None:
        acting = [method for method in methods if acts_in_updates(method)]
        try:
            self._tell("begin", tokens, loss, mismatch, acting)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TrainError(
                f"a method or the loss cannot be sent to the other ranks ({error}): what they hold must be functions "
                "and classes at the top of a module; or set cluster.trainers=1"
            ) from error
        super().begin(tokens, loss, mismatch, acting)

    def update(self, mini: Sequence[TokenSequence], targets: Targets, policy_too: bool, fresh_N: Mask) -> Updated:
        self._tell("update", mini, targets, policy_too, fresh_N)
        with self._together():
            return super().update(mini, targets, policy_too, fresh_N)

    def pass_by(self, lost: bool) -> None:
        self._tell("pass_by", lost)
        super().pass_by(lost)

    def state_dict(self) -> dict[str, Any]:
        """Whole when it is written: until then each rank keeps its own."""
        return {part: partial(self.state_of, part) for part in PARTS}

    def state_of(self, part: str) -> dict[str, Any]:
        self._tell("state_of", part)
        with self._together():
            return super().state_of(part)

    def load_state_dict(self, state: dict[str, Any] | None) -> None:
        self._tell("load_state_dict", None)
        with self._together():
            super().load_state_dict(state)

    def _tell(self, name: str, *inputs: Any) -> None:
        file = io.BytesIO()
        torch.save((name, inputs), file)
        for link in self._links:
            link.send(file.getvalue())

    # When one is lost

    def _wait_until_there(self) -> None:
        end, there = time.monotonic() + START_SECONDS, 0
        while there < len(self._links):
            heard = self._transport.hear(max(0.0, end - time.monotonic()))
            if heard is None:
                raise TrainError(f"{len(self._links) - there} of the ranks had not begun after {START_SECONDS:g} s")
            self._raise_for(heard.link.name, heard.reply, heard.words)
            there += 1

    @contextmanager
    def _together(self) -> Generator[None]:
        """An error is that of the rank which had it first."""
        before = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            yield
        except Disconnected as error:
            self._ask_why()
            raise RankLost(f"{error}; a rank may hang, or cluster.seconds be too few") from error
        finally:
            torch.set_num_threads(before)

    def _ask_why(self) -> None:
        """Those that have lost another say nothing, and leave."""
        end, gone = time.monotonic() + LAST_WORDS, list[tuple[str, str]]()
        while len(gone) < len(self._links) and (heard := self._transport.hear(max(0.0, end - time.monotonic()))):
            if heard.reply is not None:
                self._raise_for(heard.link.name, heard.reply, heard.words)
            else:
                gone.append((heard.link.name, heard.words))
        killed = [one for one in gone if "exit code 0" not in one[1]]
        if killed:
            name, words = killed[0]
            raise RankLost(f"{name} {words}")

    def _raise_for(self, name: str, reply: bytes | None, words: str) -> None:
        """If it is not a word of one that is there."""
        if reply is None:
            raise RankLost(f"{name} {words}")
        try:
            said = reply_from_bytes(reply)
        except BadReply as error:
            raise TrainError(f"{name} said what it should not: {error}") from error
        if isinstance(said, Failed):
            raise TrainError(f"{name}: {said.words}")


def acts_in_updates(method: Method) -> bool:
    """Whether it does anything where the weights are."""
    hooks = ("weigh", "loss", "updated")
    return any(getattr(type(method), hook) is not getattr(Method, hook) for hook in hooks)


# Another rank


def follow(speaker: Speaker, orders: queue.SimpleQueue[bytes], handed: Handed) -> None:
    begin: Begin = pickle.loads(orders.get())
    torch.set_num_threads(begin.threads)
    device = torch.device(begin.device)
    if device.type == "cuda":
        torch.cuda.set_device(begin.rank)  # which is "cuda" from now on
    torch.use_deterministic_algorithms(device.type == "cpu", warn_only=True)
    speaker.say(Working())
    try:
        config = begin.config
        group = RankGroup(begin.rank, config.cluster.trainers, begin.file, device, config.cluster.seconds)
        tensors = [_empty(*told, device) for told in begin.tensors]
        group.spread(tensors)
        policy, reference = put_together(begin.skeleton, tensors)
        replica = Replica(policy, reference, config, group)
        while (order := orders.get()) != LEAVE:
            name, inputs = torch.load(io.BytesIO(order), map_location=device, weights_only=False)
            getattr(replica, name)(*inputs)
        group.close()
    except Disconnected:
        return  # the first rank hears who was lost
    except torch.OutOfMemoryError as error:
        raise TrainError(f"out of memory ({str(error).splitlines()[0]:.200}); {OUT_OF_MEMORY}") from error


def _empty(
    dtype: torch.dtype, shape: tuple[int, ...], is_parameter: bool, learns: bool, device: torch.device
) -> Tensor:
    tensor = torch.empty(shape, dtype=dtype, device=device)
    return nn.Parameter(tensor, requires_grad=learns) if is_parameter else tensor
