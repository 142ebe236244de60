"""Defines the engine protocol: an engine samples responses to requests.

An engine holds conversations in numbered slots. A request gives all tokens before the response; what the engine
already holds of that conversation need not be computed again. Four engines exist: torch (in this process), native (the
same on a GPU, for Llama-shaped models; engine.kind = "fast"), vLLM, and any server that speaks OpenAI's protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from isentrope.core.errors import EngineError, IsentropeError

if TYPE_CHECKING:  # keeps `isentrope --help` free of numpy
    from isentrope.core.tokenizer import ChatTokenizer
    from isentrope.core.types import Floats, Ints, TokenTemperature

TAIL_BYTES = 64  # the end of a response that a stop rule is shown
SAMPLERS_LOST = ("samplers_lost", "requests_moved", "weights_refused")
CLUSTER_NOTES = ("samplers", *SAMPLERS_LOST)  # what several engines that sample together note besides their own


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do; a class from outside says it in `capabilities`."""

    trains: bool = True  # it samples from the policy that learns, with its newest weights after `refresh`
    loads_policy: bool = True  # it takes the policy of this process; else it has a model of its own elsewhere
    exact: bool = True  # its log-probs are those of the policy up to rounding; else old_logprobs = recompute is advised


@dataclass(frozen=True)
class Request:
    """One response to sample. `uniforms` has one number in [0, 1) for every token that may be sampled."""

    slot: int
    prompt: Sequence[int]
    uniforms: Floats
    temperature: float  # 0: take the likeliest token
    stop: Callable[[bytes], bool]  # is the response complete, given the bytes at its end?
    temperature_of: TokenTemperature | None = None  # instead, for a response whose tokens differ
    closings: tuple[bytes, ...] = ()  # `stop` holds only right behind one of these (white space aside); none: anywhere


@dataclass(frozen=True)
class Sampled:
    """A response, and for each of its tokens what it was drawn from; NaN where the engine cannot say."""

    ids: Ints
    logprobs: Floats
    entropies: Floats
    temperatures: Floats  # 0: the likeliest token, with log-prob and entropy at temperature 1
    stop: str  # "tag", "eos", "length", or "error": there is no response and `detail` says why
    detail: str = ""


class Engine(Protocol):
    @property
    def tokenizer(self) -> ChatTokenizer: ...

    def open(self, slots: Sequence[int]) -> None:
        """Begin with these conversations, all empty. Whatever was held before is forgotten."""
        ...

    def keep(self, slots: Sequence[int]) -> None:
        """Only these conversations go on; the engine may forget the others."""
        ...

    def sample(self, requests: Sequence[Request]) -> list[Sampled]:
        """One response to each request, in their order."""
        ...

    def refresh(self) -> None:
        """The policy's weights have changed since the last sample."""
        ...

    def notes(self) -> dict[str, float]:
        """What the engine has to say of its work since it was asked last: metrics, without their `engine/` prefix."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Remembering(Protocol):
    """What an engine has besides if what it sampled before bears on the last bits of what it samples next."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Streaming(Protocol):
    """What an engine has besides if it takes requests while others are answered: no conversation waits for another.

    A slot whose conversation has ended may be used for a new one: a prompt that does not begin with what the slot
    holds begins anew.
    """

    @property
    def waiting(self) -> int:
        """Requests that are not answered yet."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Take these too. A slot may have one request at a time."""
        ...

    def collect(self) -> dict[int, Sampled]:
        """Work until at least one response is complete, and give all that are, by slot; nothing if none waits."""
        ...


def answers_to(requests: Sequence[Request], engine: Streaming) -> list[Sampled]:
    """What such an engine's `sample` gives: all responses, in the order of their requests."""
    engine.submit(requests)
    found: dict[int, Sampled] = {}
    while any(request.slot not in found for request in requests):
        found |= engine.collect()
    return [found[request.slot] for request in requests]


@contextmanager
def calling_engine(engine: object, hook: str) -> Generator[None]:
    """Errors of an engine from outside name it and the hook; those that speak for themselves, and a full card, pass."""
    try:
        yield
    except IsentropeError:
        raise
    except Exception as error:
        kind = type(engine)
        if kind.__module__.split(".")[0] == "isentrope" or type(error).__name__ == "OutOfMemoryError":
            raise
        said = str(error) if type(error) is ValueError else f"raised {type(error).__name__}: {error}"
        raise EngineError(f"engine {kind.__module__}:{kind.__qualname__}, hook {hook}: {said}") from error
