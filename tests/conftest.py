"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock; interrupts work even
where a shell that started the tests in the background has turned them off; without a GPU kernels are interpreted."""

from __future__ import annotations

import os
import signal

import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anyone imports triton: its own functions need it too

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
