"""Other load generators (harnesses) that run a plan instead of Inferometer, one module per tool. A harness renders a
plan to its command and files, and names its result files. Nothing is started here: a local process or a pod runs the
rendered command."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeGuard

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.errors import PlanError
from inferometer.plan.foreign.common import Foreign
from inferometer.plan.foreign.recognise import from_command
from inferometer.plan.foreign.shapes import expanded, tidy
from inferometer.plan.model import Plan
from inferometer.plan.reading import plan_from
from inferometer.plan.text import as_written
from inferometer.plan.workloads import Lengths, Synthetic
from inferometer.vocabulary import attribute_at

LLMD_IMAGE = "ghcr.io/llm-d/llm-d-benchmark"  # contains the harnesses that llm-d-benchmark launches


@dataclass(frozen=True, slots=True)
class HarnessEndpoint:
    """The server to measure. The API key is not part of it: `Harness.key_env` names its variable."""

    url: str  # without /v1
    model: str  # its served name
    tokenizer: str  # a folder, or a name on the model hub: most tools tokenize themselves


@dataclass(frozen=True, slots=True)
class Places:
    """The folders for input files and results, as the command sees them; a pod mounts them at other paths."""

    inputs: str = "."
    results: str = "results"


@dataclass(frozen=True, slots=True)
class Rendered:
    """A plan as a harness's command and files. `notes` has the tool's differences by the path of a setting."""

    argv: list[str]
    files: dict[str, str] = field(default_factory=dict)  # below `Places.inputs`
    env: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


Render = Callable[[Plan, HarnessEndpoint, Places], Rendered]


@dataclass(frozen=True, slots=True)
class Harness:
    """Another load generator."""

    name: str
    title: str
    render: Render
    read: Callable[[Rendered], Foreign] | None  # our reader of that tool's plans, for the rendered files
    results: tuple[str, ...]  # patterns in `Places.results`: the first with a file is the result
    format: str  # of that file, in `inferometer import --formats`
    requests: tuple[str, str] | None = None  # pattern and format of a second file, with every request
    program: str = ""  # in the `bin` of its environment, if `argv` does not begin with python
    requirements: tuple[str, ...] = ()  # packages of its environment; empty if it is not on PyPI
    bare: tuple[str, ...] = ()  # packages that are installed without their declared dependencies
    python: tuple[int, int] = (3, 10)  # minimum version
    image: str | None = None  # the container image that a pod runs
    key_env: str | None = None  # the variable from which it reads the API key
    keyed: Callable[[str], list[str]] | None = None  # arguments with the key, if it reads no variable
    key_needed: bool = False  # it does not start without a key, even if the server needs none

    @property
    def by_image(self) -> bool:
        """Whether it exists only as an image, which a pod runs in a container next to ours."""
        return self.image is not None and not self.requirements


# -- what a plan contains --------------------------------------------------------------------------------------------


def synthetic(plan: Plan, name: str) -> Synthetic:
    """The workload; harnesses support only synthetic ones."""
    if plan.traffic:
        raise PlanError(f"traffic: {name} has no traffic classes", "give each class a plan of its own")
    if not isinstance(plan.workload, Synthetic):
        text = f"workload.type: {name} is given synthetic prompts only, got {plan.workload.type}"
        raise PlanError(text, "measure such a plan without --harness")
    return plan.workload


def single(lengths: Lengths | None, path: str, name: str) -> int:
    """A length that is one number."""
    if lengths is None or lengths.type != "fixed" or lengths.value is None:
        raise PlanError(f"{path}: {name} needs one number, got {lengths}")
    return lengths.value


def bell(lengths: Lengths | None, path: str, name: str) -> tuple[float, float]:
    """Mean and standard deviation."""
    if lengths is not None and lengths.type == "fixed" and lengths.value is not None:
        return lengths.value, 0.0
    if lengths is not None and lengths.type == "normal" and lengths.mean is not None:
        return lengths.mean, lengths.std or 0.0
    raise PlanError(f"{path}: {name} has fixed and normal lengths, got {lengths}")


def counted(plan: Plan, name: str) -> tuple[int, dict[str, str]]:
    """The number of requests, for a tool without a time limit; a duration is converted with the rate."""
    stop, load = plan.stop, plan.load
    if stop.requests is not None and stop.duration is None:
        return stop.requests, {}
    if stop.requests is None and stop.duration is not None and load.rate is not None and load.type != "ramp":
        requests = max(1, round(stop.duration * load.rate))
        text = f"{name} ends by requests: {tidy(stop.duration)} s at {load.rate:g} per second are {requests:,}"
        return requests, {"stop": text}
    raise PlanError(f"stop: {name} ends after a number of requests only, got {_written_stop(plan)}", "--requests 400")


def timed(plan: Plan, name: str) -> tuple[float, dict[str, str]]:
    """The duration of the load, for a tool whose rates end only by time."""
    stop, load = plan.stop, plan.load
    if stop.duration is not None and stop.requests is None:
        return stop.duration, {}
    if stop.duration is None and stop.requests is not None and load.rate:
        lasts = stop.requests / load.rate
        return lasts, {"stop": f"{name} ends by time: {stop.requests:,} at {load.rate:g} per second take {lasts:g} s"}
    raise PlanError(f"stop: {name} ends a rate after a duration only, got {_written_stop(plan)}", "--duration 60s")


def _written_stop(plan: Plan) -> str:
    ends = {"requests": plan.stop.requests, "duration": plan.stop.duration, "sessions": plan.stop.sessions}
    return ", ".join(f"{name} {value:g}" for name, value in ends.items() if value is not None) or "none of them"


def ignores_end(plan: Plan) -> bool:
    """Whether answers continue to the requested length (ignore_eos)."""
    chosen = plan.sampling.ignore_eos
    return plan.workload.mean_output is not None if chosen is None else chosen


def flags(values: JsonObject) -> list[str]:
    """`--name value` for each; True is a flag alone, None and False are left out."""
    argv: list[str] = []
    for name, value in values.items():
        if value is None or value is False:
            continue
        argv += [f"--{name}"] if value is True else [f"--{name}", str(tidy(value) if _is_number(value) else value)]
    return argv


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float)


# -- what a harness cannot express ------------------------------------------------------------------------------------

# Settings that do not affect the requests: how we send, observe, judge and store. The harness does this its own way.
_TRANSLATED = (
    *("name", "about", "server", "observe", "limits", "outputs", "save", "workers", "place", "ray", "confidence"),
    *("target.url", "target.model", "target.key_env", "target.tls", "target.timeout", "target.bounds"),
    *("target.preconnect", "target.exclusive", "target.continuous_usage", "stop.drain", "stop.minutes"),
    *("workload.nonce_tokens", "workload.tokenizer", "workload.vocabulary", "load.tokens_per_s"),
)
_NOTED = {"seed": "the tool draws its own prompts and arrivals"}
_EXTENT = ("stop.requests", "stop.duration")  # covered by a note on `stop`


def read_command(rendered: Rendered) -> Foreign:
    """Read the rendered command, as `inferometer run -- ...` does."""
    argv = rendered.argv
    return from_command(argv)


def checked(harness: Harness, plan: Plan, rendered: Rendered) -> list[str]:
    """The differences of the harness, one line per setting; a setting that it would lose is a `PlanError`.

    No list is maintained by hand: our reader of that tool's plans reads the rendered files back, and the two plans
    are compared.
    """
    known = _NOTED | rendered.notes
    if harness.read is None:
        return [f"{path}: {text}" for path, text in rendered.notes.items()]
    ours, theirs = dict(_leaves(plan)), dict(_leaves(_read_back(harness, rendered)))
    lost, noted = [], dict.fromkeys(rendered.notes)
    for path in dict.fromkeys([*ours, *theirs]):
        if ours.get(path) == theirs.get(path) or _below(path, _TRANSLATED):
            continue
        place = _below(path, known)
        if place is not None and (place != "stop" or path in _EXTENT):
            noted[place] = None
            continue
        got = f"; it would send {as_written(theirs[path])}" if theirs.get(path) is not None else ""
        lost.append(f"{path}: {harness.name} cannot express {as_written(ours.get(path))}{got}")
    if lost:
        raise PlanError(lost, "change the plan, or measure it without --harness")
    return [f"{path}: {known[path]}" for path in noted]


def _read_back(harness: Harness, rendered: Rendered) -> Plan:
    assert harness.read is not None
    foreign = harness.read(rendered)
    mapping = foreign.plan
    if not mapping:
        cases = expanded(foreign.experiment) or []
        if len(cases) != 1:
            raise PlanError(f"{harness.name}: what was rendered is not one run but {len(cases)}")
        mapping = cases[0][1]
    return plan_from(mapping, where=harness.name)


def _leaves(plan: Plan) -> Iterator[tuple[str, Any]]:
    """Every effective setting by its path."""
    settled = plan.model_copy(update={"sampling": plan.sampling.model_copy(update={"ignore_eos": ignores_end(plan)})})
    yield from _flat(settled.model_dump(mode="json"), "")


def _flat(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif value not in (None, {}, []):
        yield path, value


def _below(path: str, places: Any) -> str | None:
    """The entry of `places` that is the path or one of its sections."""
    return next((place for place in places if path == place or path.startswith(f"{place}.")), None)


BUILT_IN = {
    "inferometer": "Inferometer itself",
    "nop": "no load: how long the server takes to start, as `inferometer startup` measures it",
}
_HERE = "inferometer.exchange.harness"
HARNESSES: dict[str, str] = {
    "inference-perf": f"{_HERE}.inference_perf:HARNESS",
    "guidellm": f"{_HERE}.guidellm:HARNESS",
    "vllm-benchmark": f"{_HERE}.vllm:HARNESS",
    "sglang": f"{_HERE}.sglang:HARNESS",
    "aiperf": f"{_HERE}.aiperf:HARNESS",
    "genai-bench": f"{_HERE}.genai_bench:HARNESS",
    "fmperf": f"{_HERE}.fmperf:HARNESS",
}
NAMES = ("inferometer", *HARNESSES, "nop")
_REFUSED = {
    "inferencemax": "drives a cluster of its own",
    "lm-eval": "scores answers instead of timing them",
    "eval-containers": "scores answers instead of timing them",
    "priority-mix": "its profile is a plan with traffic classes: inferometer run PROFILE",
}
_ALIASES = {"vllm": "vllm-benchmark", "vllm-bench": "vllm-benchmark", "sglang-bench": "sglang", "genai-perf": "aiperf"}


def checked_name(name: str) -> str:
    """A valid harness name; harnesses of llm-d that are not supported are refused with the reason."""
    if name in NAMES:
        return name
    if name in _REFUSED:
        raise PlanError(f"--harness {name}: is not supported: {_REFUSED[name]}", f"there are {', '.join(NAMES)}")
    meant = f"; did you mean {_ALIASES[name]}?" if name in _ALIASES else ""
    raise PlanError(f"--harness {name}: there is no such harness{meant}", f"there are {', '.join(NAMES)}")


@cache
def harness_named(name: str) -> Harness:
    """The harness of that name, except for `inferometer` and `nop`, which render nothing."""
    checked_name(name)
    if name in BUILT_IN:
        raise PlanError(f"--harness {name}: is Inferometer itself, which has no other tool's files")
    harness: Harness = attribute_at(HARNESSES[name])
    return harness
