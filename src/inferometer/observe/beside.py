"""Processes beside the load that must not cost it its pace."""

import os
from contextlib import suppress

NICENESS = 5


def stand_back() -> None:
    """The load goes first: when we wake up, nobody is put aside for us. But on cores that are all busy we still get our
    share, or nothing would be seen there at all (SCHED_IDLE would get almost none)."""
    with suppress(OSError):
        os.nice(NICENESS)
        if hasattr(os, "SCHED_BATCH"):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
