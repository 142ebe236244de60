"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock, and interrupts work
even where a shell that started the tests in the background has turned them off."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
