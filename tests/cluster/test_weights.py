"""Weights in shared memory: one copy that samplers only read; checksums that see every change."""

from __future__ import annotations

import faulthandler
import os
import random
from pathlib import Path

import pytest
import torch

from isentrope.bench.sampling import random_policy
from isentrope.cluster.checks import checksums
from isentrope.cluster.weights import (
    SharedMemory,
    moving_tensors,
    put_together,
    received,
    share,
    take_apart,
    take_over,
)  # fmt: skip
from isentrope.config.schema import PolicySettings
from isentrope.core.errors import EngineError
from isentrope.models.lora import Base, with_adapters
from isentrope.models.policy import Policy
from tests.models.helpers import small_policy


def shared(policy: Policy) -> tuple[SharedMemory, Policy, list[torch.Tensor]]:
    """The learner's side, and a policy as a sampler has it."""
    skeleton, tensors = take_apart(policy)
    memory = share(policy, tensors, moving_tensors(policy, tensors))
    assert isinstance(memory, SharedMemory)
    theirs = received(memory.handles(), os.dup(memory.fileno()))
    return memory, put_together(skeleton, theirs), theirs


def adapted() -> Policy:
    pytest.importorskip("peft")
    return with_adapters(small_policy(), PolicySettings(lora_rank=2), 0, Base("small", "small"))


@pytest.mark.parametrize("make", [small_policy, adapted])
def test_a_sampler_has_the_same_policy(make: type) -> None:
    policy = make()
    _, taken, _ = shared(policy)
    ours, theirs = dict(policy.module.named_parameters()), dict(taken.module.named_parameters())
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert len({parameter.data_ptr() for parameter in ours.values()}) == len({p.data_ptr() for p in theirs.values()})
    ids = torch.tensor([[5, 6, 7]])
    places = torch.arange(3)[None]
    with torch.no_grad():
        hidden = [one.model.hidden(ids, places, torch.zeros_like(ids)) for one in (policy, taken)]
    assert torch.equal(*hidden)
    assert taken.tokenizer.opening("a", "b") == policy.tokenizer.opening("a", "b")
    assert not any(parameter.requires_grad for parameter in theirs.values())


def test_new_weights_are_seen_when_they_are_published_and_not_before() -> None:
    policy = small_policy()
    memory, taken, tensors = shared(policy)
    sources = [tensor.detach() for tensor in tensors]
    before = checksums(tensors)
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(2)
    assert checksums(tensors) == before != checksums(take_apart(policy)[1])
    memory.publish()
    assert checksums(tensors) == checksums(take_apart(policy)[1])
    assert taken.model.head_weight().data_ptr() in {source.data_ptr() for source in sources}  # nothing was copied


def test_an_engine_that_gives_a_tensor_other_memory_gets_a_copy() -> None:
    policy = small_policy()
    memory, _, tensors = shared(policy)
    sources = [tensor.detach() for tensor in tensors]
    tensors[2].data = tensors[2].clone()
    with torch.no_grad():
        for parameter in policy.module.parameters():
            parameter.mul_(2)
    memory.publish()
    assert checksums(tensors) != checksums(sources)
    take_over(tensors, sources)
    assert checksums(tensors) == checksums(take_apart(policy)[1])


def test_with_adapters_only_those_are_copied_again() -> None:
    policy = adapted()
    tensors = take_apart(policy)[1]
    names = {id(parameter): name for name, parameter in policy.module.named_parameters()}
    moving = moving_tensors(policy, tensors)
    assert {names[id(tensors[number])] for number in moving} == {n for n in names.values() if "lora_" in n}
    assert len(moving_tensors(small_policy(), take_apart(small_policy())[1])) == len(take_apart(small_policy())[1])


def test_samplers_cannot_write_into_what_others_read() -> None:
    """Whoever tries is ended by the system; so it is done in a process of its own."""
    memory, taken, _ = shared(small_policy())
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        with torch.no_grad():
            taken.model.head_weight().mul_(0)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert memory.fileno() > 0


def test_nothing_with_a_name_is_left_in_memory() -> None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        pytest.skip("no /dev/shm here")
    before = set(folder.iterdir())
    kept = shared(small_policy())
    assert set(folder.iterdir()) <= before
    kept[0].close()


def test_too_little_memory_is_an_error_and_no_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(EngineError, match=r"no 0\.00 GiB of memory .*No space left"):
        shared(small_policy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float64])
def test_a_checksum_sees_every_change_of_one_number_and_of_two_places(dtype: torch.dtype) -> None:
    chance = random.Random(0)
    tensor = (torch.arange(1, 36) * 7 % 31).to(dtype).reshape(5, 7)
    (right,) = checksums([tensor])
    for _ in range(200):
        one, other = chance.sample(range(35), 2)
        swapped, changed = tensor.clone(), tensor.clone()
        swapped.view(-1)[[one, other]] = tensor.view(-1)[[other, one]]
        changed.view(-1)[one] = changed.view(-1)[one] == 0
        assert (checksums([swapped])[0] == right) == torch.equal(swapped, tensor)
        assert (checksums([changed])[0] == right) == torch.equal(changed, tensor)


def test_a_checksum_sees_a_sign_in_two_places() -> None:
    tensor = torch.zeros(64)
    tensor[2], tensor[34] = -1.5, 1.5
    swapped = -tensor
    assert checksums([tensor]) != checksums([swapped])


def test_checksums_of_long_and_odd_tensors() -> None:
    torch.manual_seed(0)
    long = torch.randn(3, 1 << 21)
    assert checksums([long, long.T.contiguous().T]) == [checksums([long])[0]] * 2
    assert checksums([torch.zeros(0), torch.tensor(1.0)]) == [(0, 0), (0x3F800000, 0x3F800000)]
    assert checksums([]) == []


def test_hooks_of_training_stay_behind() -> None:
    """They are functions within functions, such as transformers' for gradient checkpointing."""
    policy, seen = small_policy(), list[int]()

    def hook(*_: object) -> None:
        seen.append(1)

    policy.module.get_submodule("layers.0.input_layernorm").register_forward_hook(hook)
    _, taken, _ = shared(policy)
    ids = torch.tensor([[5, 6, 7]])
    numbers = (ids, torch.arange(3)[None], torch.zeros_like(ids))
    with torch.no_grad():
        theirs = taken.model.hidden(*numbers)
        assert not seen
        assert torch.equal(policy.model.hidden(*numbers), theirs)
    assert seen


@pytest.mark.parametrize("rank", [0, 2])
def test_a_hugging_face_model_that_computes_twice_arrives(rank: int) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("peft")
    policy = random_policy("tiny")
    if rank:
        policy = with_adapters(policy, PolicySettings(lora_rank=rank), 0, Base("tiny", "tiny"))
    policy.model.compute_twice()
    _, taken, _ = shared(policy)
    ids = torch.tensor([[5, 6, 7]])
    numbers = (ids, torch.arange(3)[None], torch.zeros_like(ids))
    with torch.no_grad():
        assert torch.equal(policy.model.hidden(*numbers), taken.model.hidden(*numbers))
