"""How long an engine takes to start, and on what: read from its log (`log`), whose wordings are a table."""

from inferometer.target.startup.report import StartupLog, StartupReport, read_startup, startup_of

__all__ = ["StartupLog", "StartupReport", "read_startup", "startup_of"]
