"""Inferometer measures LLM inference: a plan is driven at a target, every instant is recorded, numbers carry their
error, and the run is kept. What the command line can, Python can:

    from inferometer import compare_runs, open_store, plan_from
    from inferometer.conduct.run import run

    measured = run(plan_from({"target": "http://localhost:8000", "load": {"type": "poisson", "rate": 5}}))
    measured.summary["measures"]["ttft"]["p50"]
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:  # of `python -m inferometer`: its first place to import from is
    del sys.path[0]  # the working folder, whose modules would be run in place of the standard library's

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferometer.conduct.compare import check_run as check_run
    from inferometer.conduct.compare import compare_runs as compare_runs
    from inferometer.plan.model import Plan as Plan
    from inferometer.plan.reading import plan_from as plan_from
    from inferometer.plan.reading import read_plan as read_plan
    from inferometer.record.columns import Records as Records
    from inferometer.record.run import Run as Run
    from inferometer.store.folder import load_run as load_run
    from inferometer.store.store import open_store as open_store

__version__ = "0.1.0"

_PUBLIC = {  # imported on use: `inferometer --help` must not wait for numpy
    "check_run": "inferometer.conduct.compare",
    "compare_runs": "inferometer.conduct.compare",
    "Plan": "inferometer.plan.model",
    "Records": "inferometer.record.columns",
    "Run": "inferometer.record.run",
    "load_run": "inferometer.store.folder",
    "open_store": "inferometer.store.store",
    "plan_from": "inferometer.plan.reading",
    "read_plan": "inferometer.plan.reading",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'inferometer' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
