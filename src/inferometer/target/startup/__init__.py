"""How long an engine takes to start, and on which phases: read from its log (`log`), with a table of known messages."""

from inferometer.target.startup.report import StartupLog, StartupReport, read_startup, startup_of

__all__ = ["StartupLog", "StartupReport", "read_startup", "startup_of"]
