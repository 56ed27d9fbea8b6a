"""`Curve`: the error of the load generator itself on one machine, as `inferometer calibrate` measures it and every
summary uses it."""

import msgspec

SCHEMA = "inferometer/calibration/1"


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What the error depends on: another CPU, kernel, Python or version needs a curve of its own."""

    cpu: str = ""
    cores: int | None = None
    system: str = ""
    python: str = ""
    inferometer: str = ""


class CalibrationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load and the errors at it, in seconds, as absolute values: early is as wrong as late."""

    streams: int = 0
    interval: float = 0.0  # seconds between two tokens of a stream
    events: int = 0
    events_per_s: float = 0.0
    ttft_error_p50: float | None = None
    ttft_error_p99: float | None = None
    read_error_p50: float | None = None
    read_error_p99: float | None = None
    inside_share: float | None = None  # of the reads, within their stated uncertainty
    unmatched: int = 0
    cpu_s_per_million: float | None = None
    stamps: str | None = None
    metronome_late_p99: float | None = None
    metronome_late: bool = False

    def kept_up(self) -> bool:
        """Errors above a token interval mean that reads wait for their turn."""
        return self.read_error_p99 is not None and self.read_error_p99 <= self.interval

    def sent_late(self) -> bool:
        """Whether the metronome itself could not send in time: what the client missed is then not its own limit."""
        return self.metronome_late_p99 is not None and self.metronome_late_p99 > self.interval


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The points, where and when they were measured, and the most events per second that the client kept up with."""

    schema: str = SCHEMA
    machine: Machine = Machine()
    made: str = ""
    points: list[CalibrationPoint] = []
    ceiling_events_per_s: float | None = None
    ceiling_is_at_least: bool = False  # it never fell behind: its limit is not below
