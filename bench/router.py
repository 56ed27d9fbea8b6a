"""The cost of our router compared with others, in one call: CPU time per streamed event, and the added TTFT.

python bench/router.py [--rate 200] [--duration 15] [--turns 9] [--program vllm-router=PATH ...] [--json]
chrt -f 10 python bench/router.py --at-once --turns 7 --duration 30   # ours and nginx in the same run: how much later
python bench/router.py --tree   # only the prefix tree: matches per second

Routers that are not installed are skipped. Two metronomes answer; every router gets the same load, with the same seed,
in turns with rotating order. Each turn is a pair with nginx; the intervals contain the median of the pairs with 95%
confidence for any distribution (order statistics; at least six turns).

A busy machine changes the p99 of one run several times more than a router does. With --at-once both routers work at the
same time, with alternating requests and the full rate each, so that the machine affects both. The intervals are a
bootstrap over seconds, with both routers' requests of a second together. If other work runs on the machine, `chrt -f
10` (as root) gives clients, servers and routers priority; without it the wait for a core is measured.
"""

import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np

from _common import counted, inferometer, parser, print_rows
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.conduct.run import run
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import request_values
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.server import ROUTERS, Router
from inferometer.router.prefix_tree import PrefixTree
from inferometer.simulator.metronome_process import running_metronome
from inferometer.target.launch import LaunchPlace
from inferometer.target.routers import RouterEngine, free_port
from inferometer.vocabulary import attribute_at

TOKENS_IN, TOKENS_OUT = 500, 50
FIRST_S, INTERVAL_S = 0.05, 0.0054
NOT_VALID = 4  # exit code of a run with an invalid verdict, which is measured anyway
READY_S = 60.0
SETTLE_S = 15.0  # smg reports ready too early
POLICIES = {"inferometer": "prefix_aware", "nginx": "least_loaded", "haproxy": "least_loaded"}
PATH = f"{os.environ['PATH']}:/usr/sbin"
TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rate", type=float, default=200.0)
    options.add_argument("--duration", type=float, default=15.0, help="seconds of every run")
    options.add_argument("--turns", type=int, default=9, help="runs of every router")
    options.add_argument("--only", nargs="+", metavar="ROUTER", help="these routers, and no run without one")
    options.add_argument("--program", action="append", default=[], metavar="ROUTER=PATH")
    options.add_argument("--at-once", action="store_true", help="ours and nginx in the same run")
    options.add_argument("--tree", action="store_true", help="only the prefix tree")
    chosen = options.parse_args()
    if chosen.tree:
        print_rows([tree_row()], chosen.json)
        return
    programs = dict(text.split("=", 1) for text in chosen.program)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        keep_curve(curve_of([]), folder / "store")  # otherwise the first run might calibrate
        urls = [stack.enter_context(running_metronome(FIRST_S, INTERVAL_S, processes=1)).url for _ in range(2)]
        only = ["inferometer", "nginx"] if chosen.at_once else chosen.only or ROUTERS
        wanted = [(name, program) for name, program in here(programs) if name in only]
        routers = {name: stack.enter_context(started(name, program, urls, folder)) for name, program in wanted}
        time.sleep(SETTLE_S if {"smg", "sglang-router"} & routers.keys() else 0)
        if chosen.at_once:
            print_rows(rows_at_once(routers, folder, chosen.rate, chosen.duration, chosen.turns), chosen.json)
            return
        targets: dict[str, tuple[str, int | None]] = {} if chosen.only else {"direct": (urls[0], None)}
        print_rows(rows({**targets, **routers}, folder, chosen.rate, chosen.duration, chosen.turns), chosen.json)


def here(programs: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """The routers that can be started, with their programs; ours comes from this environment."""
    for name in ROUTERS:
        program = programs.get(name) or shutil.which(name, path=PATH)
        if name == "inferometer" or program is not None:
            yield name, None if name == "inferometer" else program


@contextmanager
def started(name: str, program: str | None, urls: list[str], folder: Path) -> Iterator[tuple[str, int]]:
    """A router over the two servers: its URL and process."""
    engine: RouterEngine = attribute_at(ROUTERS[name].place)
    fields: dict[str, Any] = {"type": name, "command": [program] if program else []}
    router = Router(**fields | ({"policy": POLICIES[name]} if name in POLICIES else {}))
    place = LaunchPlace("127.0.0.1", free_port("127.0.0.1"), "metronome")
    own = folder / name
    own.mkdir()
    launch = engine.launch(router, place, urls, own)
    with (own / "log").open("wb") as log:
        process = subprocess.Popen(launch.argv, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        await_answer(f"{place.url}{launch.health[0]}", process, own / "log")
        yield place.url, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()


def await_answer(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        with suppress(OSError), urlopen(url, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"error: {url} does not answer:\n{log.read_text()[-2000:]}")
        time.sleep(0.1)


def rows(
    targets: dict[str, tuple[str, int | None]], folder: Path, rate: float, duration: float, turns: int
) -> list[dict[str, Any]]:
    """Medians over the turns; relative to nginx, medians of ratios and differences within a turn, so that other work on
    the machine affects both alike. The order rotates, so that no router always follows the same one."""
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in targets}
    for url, _pid in targets.values():
        measure(url, None, folder, rate, 2.0)  # connections, caches and code are warm
    order = list(targets.items())
    for turn in range(turns):
        for name, (url, pid) in order[turn % len(order) :] + order[: turn % len(order)]:
            measured[name].append(measure(url, pid, folder, rate, duration, seed=turn))
    baseline = measured.get("nginx")
    return [row(name, turns_of, baseline) for name, turns_of in measured.items()]


def row(name: str, turns: list[dict[str, float]], nginx: list[dict[str, float]] | None) -> dict[str, Any]:
    def median(key: str) -> float:
        return statistics.median(turn[key] for turn in turns)

    pairs = list(zip(turns, nginx or [], strict=False))
    is_router = "cpu" in turns[0]
    ratios = [own["cpu"] / other["cpu"] for own, other in pairs] if is_router else []
    later = [own["p99"] - other["p99"] for own, other in pairs]
    return {
        "router": name,
        "events": int(median("events")),
        "cpu s/M": median("cpu") if is_router else None,
        "x nginx": statistics.median(ratios) if ratios else None,
        "x nginx 95%": span(ratios),
        "ttft p50": median("p50"),
        "ttft p99": median("p99"),
        "p99 - nginx": statistics.median(later) if later else None,
        "p99 - nginx 95%": span(later),
        "rss MB": median("rss") if is_router else None,
        "failed": int(sum(turn["failed"] for turn in turns)),
    }


def span(values: list[float]) -> str | None:
    """Order statistics that enclose the median with at least 95% confidence; None if there are too few values."""
    n, ordered = len(values), sorted(values)
    below, tail = -1, 0.0
    while n and tail + math.comb(n, below + 1) / 2**n <= 0.025:
        below += 1
        tail += math.comb(n, below) / 2**n
    return None if below < 0 else f"{ordered[below]:.2f} to {ordered[n - 1 - below]:.2f}"


def measure(url: str, pid: int | None, folder: Path, rate: float, duration: float, seed: int = 0) -> dict[str, float]:
    """One run: CPU seconds of the router per million events, and the TTFT in ms."""
    before = cpu_s(pid) if pid else 0.0
    finished = counted(
        inferometer(
            *("run", "--url", url, "--store", str(folder / "store"), "--quiet", "--json"),
            *("--rate", f"{rate:g}", "--duration", f"{duration:g}s", "--seed", str(seed), "--set", "observe=off"),
            *("--set", f"workload.input_tokens={TOKENS_IN}", "--set", f"workload.output_tokens={TOKENS_OUT}"),
        ),
        fine=(0, 1, NOT_VALID),
    )
    used = cpu_s(pid) - before if pid else 0.0
    summary = json.loads(finished.output)["summary"]
    ttft = summary["measures"]["ttft"]
    events = summary["tokens"]["output"]["counted"] or summary["tokens"]["output"]["reported"]
    found = {
        "events": events,
        "p50": 1e3 * ttft["p50"],
        "p99": 1e3 * ttft["p99"],
        "failed": summary["failures"]["failed"],
    }
    return found | ({"cpu": 1e6 * used / events, "rss": rss_mb(pid)} if pid else {})


# -- both at once ----------------------------------------------------------------------------------------------------

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
RESAMPLES = 4000


def rows_at_once(
    routers: dict[str, tuple[str, int]], folder: Path, rate: float, duration: float, turns: int
) -> list[dict[str, Any]]:
    """TTFT of both, and how much later ours is; CPU time per million events, and the ratio."""
    values: dict[str, list[np.ndarray]] = {name: [] for name in routers}  # by second, in ms
    ratios, failed = [], 0
    urls = [url for url, _pid in routers.values()]
    run(both_plan(urls, rate, 3.0, turns), store=folder / "store")  # connections, caches and code are warm
    for seed in range(turns):
        before = {name: cpu_s(pid) for name, (_url, pid) in routers.items()}
        made = run(both_plan(urls, rate, duration, seed), store=folder / "store")
        records = made.records
        assert records is not None
        failed += made.summary.failures.failed
        ttft = request_values("ttft", Answers.of(records)) * 1e3
        seconds = ((records.sent_at - records.sent_at.min()) // 1_000_000_000).astype(int)
        of_nginx = records.replica.mask(urls[1])
        used = {}
        for name, mine in zip(routers, (~of_nginx, of_nginx), strict=True):
            known = mine & np.isfinite(ttft)
            values[name] += [ttft[known & (seconds == second)] for second in range(int(duration))]
            events = int(records.output_tokens[mine].sum())
            used[name] = 1e6 * (cpu_s(routers[name][1]) - before[name]) / events
        ratios.append((used["inferometer"], used["nginx"]))
    found = [difference_row(name, share, values["inferometer"], values["nginx"]) for name, share in QUANTILES.items()]
    ours, others = (statistics.median(pair[at] for pair in ratios) for at in (0, 1))
    cpu = {"ours": round(ours, 2), "nginx": round(others, 2), "ours - nginx": round(ours - others, 2)}
    requests = sum(map(len, values["inferometer"]))
    return [
        *(row | {"requests": requests, "failed": failed} for row in found),
        {
            "": "cpu s/M",
            **cpu,
            "95%": "x " + str(span([one / other for one, other in ratios])),
            "requests": 0,
            "failed": 0,
        },
    ]


def both_plan(urls: list[str], rate: float, duration: float, seed: int) -> Plan:
    """Every other session goes to the other URL."""
    return plan_from(
        {
            "target": {"url": urls},
            "workload": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT},
            "load": {"rate": len(urls) * rate},
            "stop": {"duration": f"{duration:g}s"},
            "observe": "off",
            "seed": seed,
        }
    )


def difference_row(name: str, share: float, ours: list[np.ndarray], nginx: list[np.ndarray]) -> dict[str, Any]:
    """A quantile of both, and the 95% interval of the difference by a bootstrap over seconds."""
    sides = [Weighted(ours), Weighted(nginx)]
    counts = np.random.default_rng(1).multinomial(len(ours), [1 / len(ours)] * len(ours), RESAMPLES)
    drawn = [sides[0].quantile(share, weights) - sides[1].quantile(share, weights) for weights in counts]
    low, high = np.quantile(drawn, [0.025, 0.975])
    one, other = (side.quantile(share, np.ones(len(ours), int)) for side in sides)
    cells = {"ours": round(one, 2), "nginx": round(other, 2), "ours - nginx": round(one - other, 2)}
    return {"": f"ttft {name}, ms", **cells, "95%": f"{low:.2f} to {high:.2f}"}


class Weighted:
    """Sorted values with their seconds, so that a resample only changes weights."""

    def __init__(self, seconds: list[np.ndarray]) -> None:
        values = np.concatenate(seconds)
        order = np.argsort(values)
        self._values = values[order]
        self._second = np.repeat(np.arange(len(seconds)), [len(second) for second in seconds])[order]

    def quantile(self, share: float, weights: np.ndarray) -> float:
        reached = np.cumsum(weights[self._second])
        return float(self._values[np.searchsorted(reached, share * reached[-1])])


# -- processes -------------------------------------------------------------------------------------------------------


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    parents: dict[int, int] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = place.read_text().rpartition(")")[2].split()
            parents[int(place.parent.name)] = int(fields[1])
    members = {pid}
    while more := {child for child, parent in parents.items() if parent in members} - members:
        members |= more
    return sorted(members)


def cpu_s(pid: int) -> float:
    total = 0
    for member in family(pid):
        with suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICKS


def rss_mb(pid: int) -> float:
    total = 0
    for member in family(pid):
        with suppress(OSError):
            total += int(Path(f"/proc/{member}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


# -- the prefix tree -------------------------------------------------------------------------------------------------

CHARS = 400_000  # per tenant
PROMPT = 4096


def tree_row() -> dict[str, Any]:
    """Prompts of 4 KB in groups of three that share a prefix, over four tenants; matched by prompts that share a part
    with one of them."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghijklmnop", k=generator.randint(2, 9))) for _ in range(5000)]

    def text(length: int) -> str:
        return " ".join(generator.choices(words, k=length // 3))[:length]

    tree, tenants, prompts = PrefixTree(), [f"http://127.0.0.1:{8000 + at}" for at in range(4)], []
    while min(tree.chars.get(tenant, 0) for tenant in tenants) < CHARS:
        shared = text(3000)
        for _ in range(3):
            prompts.append(shared + text(PROMPT - len(shared)))
            tenant = generator.choice(tenants)
            tree.insert(prompts[-1], tenant, float(len(prompts)))
            if tree.chars[tenant] > CHARS + 40_000:
                tree.evict(tenant, 40_000)
    asked = [(prompt[: generator.randint(500, PROMPT)] + text(PROMPT))[:PROMPT] for prompt in prompts for _ in range(3)]
    return {
        "chars per tenant": min(tree.chars.values()),
        "nodes": tree.nodes,
        "matches/s": per_second(lambda: [tree.match(prompt, tenants) for prompt in asked], len(asked)),
        "inserts/s": per_second(
            lambda: [tree.insert(prompt, tenants[at % 4], 1e6 + at) for at, prompt in enumerate(asked)], len(asked), 1
        ),
    }


def per_second(work: Any, count: int, times: int = 10) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return count * times / (time.process_time() - began)


if __name__ == "__main__":
    main()
