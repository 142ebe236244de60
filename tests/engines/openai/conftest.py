from __future__ import annotations

import pytest
import torch

from isentrope.engines.openai import client

torch.set_num_threads(1)  # the models are tiny, and other programs may be using the cores


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses between attempts, and no key of the person who runs the tests."""
    monkeypatch.setattr(client, "FIRST_PAUSE", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
