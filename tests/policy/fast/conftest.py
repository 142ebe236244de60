import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported: kernels run on the CPU, slowly

pytest.importorskip("triton", reason="kernels are written in Triton: pip install triton (Linux)")
