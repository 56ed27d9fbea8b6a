"""Makes the pictures of the tour from real runs, with the pages as they are: `python docs/pictures.py [STORE]`. Needs
Chromium, Pillow, and the data that INFEROMETER_DATA points at. Without a store it makes one, which takes five minutes:
measured runs of vLLM on an H200, imported results of other tools, nights of the simulator in virtual time, and a
search, a sweep and an A/B test that are run against the simulator now."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE / "pictures"
sys.path[:0] = [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "browser")]

WIDTH, HEIGHT, COLOURS = 1200, 900, 256
TALL = {"sweep": 1800, "search": 1300, "ab": 1150}
NIGHTS, SLOWER_FROM = 24, 15
SWEEP = """name: input length and rate
plan:
  server: {type: simulator, args: {speed: 4}}
  workload: {input_tokens: 512, output_tokens: 64}
  stop: {duration: 8s}
  limits: [ttft p90 < 200ms]
axes:
  load.rate: [5, 10, 20, 40]
  workload.input_tokens: [256, 1024, 4096]
gpus: 1
price_per_gpu_hour: 2
"""
FIRST_CHARTS = "Promise.all([...document.querySelectorAll('figure.chart')].slice(0, 4).map(inferometerCharts.draw))"
Picture = tuple[str, str, str]  # name, address, a script that is true once it can be taken


# -- runs ------------------------------------------------------------------------------------------------------------


def fill_store(home: Path, data: Path) -> None:
    _copy_measured(home, data / "vllm-0.24-h200-sweep")
    _command(home, "store", "remeasure")
    _simulate_nights(home)
    _command(home, "import", "-q", str(data / "vllm-0.24-h200"), str(data / "results"))
    experiment = home / "sweep.yaml"
    experiment.write_text(SWEEP)
    _command(home, "sweep", "-q", str(experiment))
    limits = ("--limit", "ttft p90 < 500ms", "--limit", "tpot p90 < 40ms")
    slow = (
        "--server",
        "simulator",
        "--set",
        "server.args.speed=0.25",
    )  # some requests per second: no matter of this machine
    _command(home, "search", "-q", *limits, *slow, "--budget", "150s", "--input-tokens", "512", "--output-tokens", "64")
    a, b = (
        f"server:{{type: simulator, args: {{speed: {speed}}}}}" for speed in (0.25, 0.3)
    )  # as slow as in the search
    load = ("--rate", "3", "--input-tokens", "256", "--output-tokens", "64")
    _command(home, "ab", "-q", "--a", a, "--b", b, "--block", "8s", "--blocks", "8", *load)


def _copy_measured(home: Path, folder: Path) -> None:
    """Run folders of ours, under ids made of when they began."""
    (home / "runs").mkdir(parents=True, exist_ok=True)
    for file in sorted(folder.glob("*/*/run.json")):
        started = datetime.fromisoformat(json.loads(file.read_text())["started"]).astimezone(UTC)
        name = f"{file.parent.parent.name}-{file.parent.name.replace('-', '_')}"
        shutil.copytree(file.parent, home / "runs" / f"{started:%Y%m%d-%H%M%S}-{name}")


def _simulate_nights(home: Path) -> None:
    """The same two workloads every night; from one commit on the simulated engine is slower."""
    import inferometer
    from inferometer.record.encoding import environment_from
    from inferometer.store.save import keep
    from inferometer.store.store import open_store

    store, now = open_store(home), datetime.now(UTC).replace(hour=3, minute=0, second=0, microsecond=0)
    for night in range(NIGHTS):
        speed, commit = (5.0, "a1b2c3") if night < SLOWER_FROM else (4.4, "d4e5f6")
        for inputs, outputs, rate in ((512, 128, 10), (2000, 200, 3)):
            settings = [f"server.args.speed={speed}"]
            lengths = {"input_tokens": inputs, "output_tokens": outputs}
            run = inferometer.simulate(rate=rate, duration="60s", seed=night, settings=settings, **lengths)
            target = {"server": "inferometer", "model": run.environment.model, "urls": []}
            about = {"model": run.environment.model, "time": "virtual", "hardware": "simulated GPU", "target": target}
            environment = environment_from(about | {"git": {"commit": f"{commit}{night:02}".ljust(40, "0")}})
            plan = {**run.plan, "server": {"type": "simulator"}}
            keep(
                store,
                kind="serving",
                plan=plan,
                environment=environment,
                summary=run.summary,
                verdict=run.verdict,
                started=now - timedelta(days=NIGHTS - night),
                records=run.records,
            )


def _command(home: Path, *words: str) -> None:
    """Some end with 1 or 4: a limit that was missed, a doubtful case. The runs are what counts here."""
    environment = os.environ | {"INFEROMETER_STORE": str(home)}
    subprocess.run(
        [sys.executable, "-m", "inferometer", *words], env=environment, check=False, stdout=subprocess.DEVNULL
    )


# -- pictures --------------------------------------------------------------------------------------------------------


def pictures_of(home: Path) -> Iterator[Picture]:
    from inferometer.conduct.report import answers_of

    answers = answers_of(home)
    drawn = "document.querySelector('figure.chart[data-drawn]')"
    yield "overview", "", "document.querySelector('table.overview')"
    measured = next(entry for entry in answers.store.runs() if entry.id.endswith("8b-a_512_128_r20"))
    yield "run", f"run.html?id={measured.id}", drawn
    nights = max(answers.families(), key=lambda family: family.runs)
    yield "history", f"history.html?family={nights.id}&measures=ttft_scheduled", drawn
    yield "explore", "explore.html?where=hardware%3D~H200", drawn
    newest = {row.kind: row.id for row in reversed(answers.experiments().experiments)}
    yield "ab", f"experiment.html?id={newest['ab']}", drawn
    yield "search", f"experiment.html?id={newest['search']}", drawn
    yield "sweep", f"experiment.html?id={newest['sweep']}", drawn


def take_pictures(home: Path) -> None:
    import chrome

    from dashboards import dashboard

    OUT.mkdir(exist_ok=True)
    with dashboard(home) as address, chrome.chromium() as browser:
        for name, path, ready in pictures_of(home):
            with browser.tab() as tab:
                tab.size(WIDTH, TALL.get(name, HEIGHT))
                tab.ask("Emulation.setScrollbarsHidden", hidden=True)
                tab.open(address + path)
                tab.wait(ready)
                if "figure" in ready:
                    tab.run(FIRST_CHARTS)
                shot = tab.ask("Page.captureScreenshot", format="png")
                _write(OUT / f"{name}.png", shot["data"])


def _write(file: Path, encoded: str) -> None:
    """Few colours: half of the size. Chosen by how far they are apart, because a series may be few points."""
    import base64

    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(encoded))).convert("RGB")
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.relative_to(HERE.parent)}: {file.stat().st_size / 1000:.0f} kB")


def main() -> None:
    if len(sys.argv) > 1:
        take_pictures(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "store"
        fill_store(home, Path(os.environ["INFEROMETER_DATA"]))
        take_pictures(home)


if __name__ == "__main__":
    main()
