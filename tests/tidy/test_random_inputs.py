"""Tests the settings of the tests with random inputs (tests/conftest.py)."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def test_random_inputs_do_not_depend_on_the_run_or_on_the_load_of_the_machine() -> None:
    """Once, such a test failed on a busy machine, because an input took longer than 200 ms."""
    assert settings.default is not None
    assert settings.default.deadline is None
    assert settings.default.derandomize
    assert settings.default.database is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
