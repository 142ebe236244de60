import pytest

pytest.importorskip("triton", reason="kernels are written in Triton: pip install triton (Linux)")
