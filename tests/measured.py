"""Checks of a command that really measured, on any machine."""

from inferometer.cli.errors import INVALID


def assert_ran(code: int | None, told: str) -> None:
    """It came to its end. A busy machine may spoil the measurement: that has an exit code of its own, and is said."""
    assert "Traceback" not in told, told
    spoiled = code == INVALID and "not valid as a measurement" in told
    assert not code or spoiled, f"exit code {code}: {told}"
