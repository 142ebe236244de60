"""Rows of one sequence need no attention mask; the result is the one with a mask."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isentrope.models.load import load_folder

pytest.importorskip("transformers", reason="pip install 'isentrope[hf]'")


@torch.no_grad()
def test_rows_of_one_sequence_give_the_same_without_a_mask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from isentrope.models import hugging_face
    from tests.models.test_hugging_face import make_folder

    model = load_folder(make_folder(tmp_path), torch.device("cpu"), "float32").model
    assert isinstance(model, hugging_face.HuggingFaceModel)
    ids = torch.tensor([[15, 70, 33, 121, 9], [44, 19, 130, 0, 0]])
    segments = torch.tensor([[0, 0, 0, 0, 0], [3, 3, 3, -1, -1]])
    positions = torch.tensor([[0, 1, 2, 3, 4], [0, 1, 2, 0, 0]])
    masks: list[object] = []
    model.decoder.register_forward_pre_hook(
        lambda module, args, options: masks.append(options["attention_mask"]), with_kwargs=True
    )
    without = model.hidden(ids, positions, segments)
    monkeypatch.setattr(hugging_face, "_one_sequence_each", lambda *_: False)
    with_mask = model.hidden(ids, positions, segments)
    assert masks[0] is None
    assert masks[1] is not None
    real = segments >= 0
    torch.testing.assert_close(without[real], with_mask[real], atol=1e-5, rtol=1e-5)


def test_which_rows_hold_one_sequence() -> None:
    from isentrope.models.hugging_face import _one_sequence_each

    columns = torch.arange(4)

    def one(positions: list[int], segments: list[int]) -> bool:
        return _one_sequence_each(torch.tensor([positions]), torch.tensor([segments]), columns)

    assert one([0, 1, 2, 3], [5, 5, 5, 5])
    assert one([0, 1, 0, 0], [5, 5, -1, -1])
    assert not one([0, 1, 0, 1], [5, 5, 6, 6])
    assert not one([2, 3, 4, 5], [5, 5, 5, 5])  # not from its start: positions would be others
