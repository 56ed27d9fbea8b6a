"""Predictions of loads that differ from the fitted ones: bursts, shared prefixes, variable lengths, long prompts, near
and over saturation. `measure` runs them and the plain loads for the fit with `torch_engine.py`; `judge` fits and
compares.

python bench/prediction.py measure --out FOLDER [--shape 8b] [--seconds 18]        (a GPU; ten minutes)
python bench/prediction.py judge FOLDER [--json]                                   (anywhere)
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from _common import HERE, inferometer, parser, print_rows
from inferometer.conduct.fit import fit
from inferometer.conduct.predict import validate
from inferometer.measure.values import quantities
from inferometer.record.run import Run
from inferometer.simulator.fitting.server_model import limits_in_log
from inferometer.store.folder import load_run

SHOWN = ("ttft", "ttft_p90", "tpot", "e2e", "e2e_p90", "output_rate")


def lengths(unit: float, prompt: int, output: int) -> dict[str, int]:
    """In tokens; `unit` is 1, or less for a small shape."""
    return {"input_tokens": round(prompt * unit), "output_tokens": round(output * unit)}


def fitted_on(unit: float, capacity: float) -> dict[str, dict[str, Any]]:
    """Plain loads: fixed lengths, Poisson or closed loop, at most 70% of the capacity."""
    middle = lengths(unit, 512, 128)
    return {
        "fit-512-128-low": plan(middle, rate=0.15 * capacity),
        "fit-512-128-half": plan(middle, rate=0.45 * capacity),
        "fit-512-128-high": plan(middle, rate=0.7 * capacity),
        "fit-1500-150-low": plan(lengths(unit, 1500, 150), rate=0.15 * capacity),
        "fit-160-384": plan(lengths(unit, 160, 384), rate=0.2 * capacity),
        "fit-1000-200-c1": plan(lengths(unit, 1000, 200), concurrency=1),
        "fit-1000-200-c16": plan(lengths(unit, 1000, 200), concurrency=16),
    }


def judged_on(unit: float, capacity: float) -> dict[str, dict[str, Any]]:
    """Loads that differ from those of the fit."""
    middle = lengths(unit, 512, 128)
    spread = {
        "input_tokens": {
            "type": "lognormal",
            "mean": round(500 * unit),
            "std": round(500 * unit),
            "min": 16,
            "max": round(4000 * unit),
        },
        "output_tokens": {
            "type": "lognormal",
            "mean": round(130 * unit),
            "std": round(110 * unit),
            "min": 4,
            "max": round(800 * unit),
        },
    }
    prefix = {
        "prefix": {"tokens": round(1000 * unit), "suffix_tokens": round(200 * unit), "groups": 8},
        "output_tokens": round(128 * unit),
    }
    return {
        "judge-bursts": plan(middle, rate=0.45 * capacity, type="gamma", cv=3),
        "judge-prefixes": plan(prefix, rate=0.6 * capacity),
        "judge-lognormal": plan(spread, rate=0.45 * capacity),
        "judge-long": plan(lengths(unit, 4000, 128), rate=0.06 * capacity),
        "judge-near-saturation": plan(middle, rate=0.88 * capacity),
        "judge-over-saturation": plan(middle, rate=1.2 * capacity),
    }


def plan(workload: Mapping[str, Any], **load: Any) -> dict[str, Any]:
    load = {name: round(value, 3) if isinstance(value, float) else value for name, value in load.items()}
    if "rate" in load:
        load.setdefault("type", "poisson")
    return {"workload": dict(workload), "load": load}


# -- measure ---------------------------------------------------------------------------------------------------------


def measure(out: Path, shape: str, seconds: float) -> None:
    unit = 0.1 if shape == "tiny" else 1.0
    out.mkdir(parents=True, exist_ok=True)
    with engine(shape, out / "server.log") as url:
        first = plan(lengths(unit, 512, 128), concurrency=64)
        run = measured("fit-512-128-c64", first, url, seconds, out)
        capacity = quantities(run.summary)["request_rate"].value
        print(f"capacity: about {capacity:.1f} requests/s", file=sys.stderr, flush=True)
        for name, load in (fitted_on(unit, capacity) | judged_on(unit, capacity)).items():
            measured(name, load, url, seconds, out)


def measured(name: str, load: Mapping[str, Any], url: str, seconds: float, out: Path) -> Run:
    document = {"name": name, "target": {"url": url}, **load, "stop": {"duration": f"{seconds:g}s", "drain": "60s"}}
    path = out / f"{name}.yaml"
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    with tempfile.TemporaryDirectory() as store:
        done = subprocess.run(
            [*inferometer("run", str(path), "--store", f"{store}/store")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        folders = [one.parent for one in Path(store).rglob("run.json")]
        if not folders:
            sys.exit(f"{done.stdout.decode()}error: {name} left no run")
        shutil.copytree(folders[0], out / name, dirs_exist_ok=True)
    run = load_run(out / name)
    shown = quantities(run.summary)
    numbers = ", ".join(f"{key} {shown[key].text}" for key in ("request_rate", "ttft.p50", "e2e.p90") if key in shown)
    print(f"{name}: {numbers}; exit code {done.returncode}", file=sys.stderr, flush=True)
    return run


@contextmanager
def engine(shape: str, log: Path) -> Iterator[str]:
    command = [sys.executable, str(HERE / "torch_engine.py"), "--shape", shape]
    with log.open("wb") as file:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file)
        try:
            assert child.stdout is not None
            line = child.stdout.readline()
            if not line:
                sys.exit(f"{log.read_text()}error: the engine did not start")
            print(line.decode().strip(), file=sys.stderr, flush=True)
            yield json.loads(line)["url"]
        finally:
            os.kill(child.pid, signal.SIGTERM)
            child.wait()


# -- judge -----------------------------------------------------------------------------------------------------------


def judge(folder: Path) -> list[dict[str, Any]]:
    """A row for every run outside of the fit: predicted relative to measured, 0.05 is 5% too much."""
    runs = [load_run(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    plain = [run for run in runs if (run.subject.name or "").startswith("fit")]
    others = [run for run in runs if run not in plain]
    limits = limits_in_log((folder / "server.log").read_text("utf-8", "replace"))
    model = fit(plain, "torch", limits, leave_one_out=True, progress=lambda text: print(text, file=sys.stderr))
    for term, value in model.terms.items():
        print(f"{term} {value.seconds:.3g} s ± {value.error:.0%} ({value.source})", file=sys.stderr)
    rows = [{"run": run.name, **{name: run.errors[name] for name in SHOWN}} for run in model.runs]
    for one in validate(model, others)[0]:
        errors = {name: one.predicted[name] / one.measured[name] - 1 for name in SHOWN}
        rows.append({"run": one.name, **errors})
    return [{name: f"{x:+.1%}" if isinstance(x, float) else x for name, x in row.items()} for row in rows]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("action", choices=("measure", "judge"))
    options.add_argument("folder", type=Path, nargs="?")
    options.add_argument("--out", type=Path)
    options.add_argument("--shape", default="8b")
    options.add_argument("--seconds", type=float, default=18.0)
    chosen = options.parse_args()
    folder = chosen.folder or chosen.out
    if folder is None:
        options.error("a folder is needed")
    if chosen.action == "measure":
        measure(folder, chosen.shape, chosen.seconds)
    else:
        print_rows(judge(folder), chosen.json)


if __name__ == "__main__":
    main()
