"""Inferometer measures LLM inference: it sends a plan's load to a target, records every instant, reports numbers with
their error, and stores the run. Everything the command line can do is available in Python:

    import inferometer

    run = inferometer.run(url="http://localhost:8000", rate=10, duration="60s")
    print(run)                                    # the summary of the terminal
    run.summary.measures["ttft"].p99              # seconds
    run.records.to_pandas()[["ttft", "tpot"]]     # one row per request
    run.chart("ttft_cdf")                         # draws itself in a notebook
"""

import sys

if sys.argv[:1] == ["-m"] and not sys.flags.safe_path:  # `python -m inferometer` puts the working folder first
    del sys.path[0]  # on the import path, so its modules would replace the standard library's

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferometer.conduct.front import ab as ab
    from inferometer.conduct.front import check as check
    from inferometer.conduct.front import compare as compare
    from inferometer.conduct.front import export as export
    from inferometer.conduct.front import import_file as import_file
    from inferometer.conduct.front import load_run as load_run
    from inferometer.conduct.front import make_plan as make_plan
    from inferometer.conduct.front import offline as offline
    from inferometer.conduct.front import report as report
    from inferometer.conduct.front import run as run
    from inferometer.conduct.front import search as search
    from inferometer.conduct.front import simulate as simulate
    from inferometer.conduct.front import sweep as sweep
    from inferometer.plan.model import Plan as Plan
    from inferometer.plan.reading import plan_from as plan_from
    from inferometer.plan.reading import read_plan as read_plan
    from inferometer.record.columns import Records as Records
    from inferometer.record.run import Run as Run
    from inferometer.store.store import open_store as open_store

__version__ = "0.1.0"

_FRONT = "inferometer.conduct.front"
_PUBLIC = {  # imported on use: `inferometer --help` must not wait for numpy
    **dict.fromkeys(("ab", "check", "compare", "export", "import_file", "make_plan", "offline", "report"), _FRONT),
    **dict.fromkeys(("load_run", "run", "search", "simulate", "sweep"), _FRONT),
    "Plan": "inferometer.plan.model",
    "Records": "inferometer.record.columns",
    "Run": "inferometer.record.run",
    "open_store": "inferometer.store.store",
    "plan_from": "inferometer.plan.reading",
    "read_plan": "inferometer.plan.reading",
}
__all__ = [*sorted(_PUBLIC), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'inferometer' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return __all__
