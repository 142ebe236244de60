"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock; its examples are the
same in every run, unless ISENTROPE_EXPLORE=1 asks for new ones (make explore); interrupts work even where a shell that
started the tests in the background has turned them off; without a GPU kernels are interpreted."""

from __future__ import annotations

import os
import signal

import torch
from hypothesis import HealthCheck, settings

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before anyone imports triton: its own functions need it too

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", patient, derandomize=True)
settings.register_profile("explore", patient)
settings.load_profile("explore" if os.environ.get("ISENTROPE_EXPLORE") else "same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
