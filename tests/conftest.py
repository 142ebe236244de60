"""Settings of all tests: a busy machine is not a failure, so hypothesis does not watch the clock."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
