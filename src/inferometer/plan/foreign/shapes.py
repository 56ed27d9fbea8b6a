"""Shared by readers of other tools' plans: lengths and loads in our form, cases named by their differences, and the
plan as readable text."""

import copy
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import yaml

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.documents.json_text import json_value
from inferometer.plan.draft import CaseDraft, ExperimentDraft, LoadDraft, PlanDraft, Setting, StageDraft
from inferometer.plan.foreign.common import Account, Settings
from inferometer.plan.model import Plan
from inferometer.plan.overrides import written
from inferometer.plan.text import Dumper, to_mapping
from inferometer.plan.workloads.lengths import Lengths

# -- shapes ----------------------------------------------------------------------------------------------------------

ESTIMATED = (
    "lengths are estimated, while the tool uses the model's tokenizer; "
    "for exact lengths: --set workload.tokenizer=model, or server"
)

SHAREGPT = (
    "https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/main/"
    "ShareGPT_V3_unfiltered_cleaned_split.json"
)
FIRST_PAIR = {"prompt": "conversations.0.value", "answer": "conversations.1.value"}  # in any role
RESOLUTIONS = {"4k": (3840, 2160), "1080p": (1920, 1080), "720p": (1280, 720), "360p": (640, 360)}  # width, height

NO_FILES = "outputs: every case is stored as a run, and --csv writes one line per case"  # one file: the last case


def load_of(rate: float | None, cap: int | None, requests: int, cv: float = 1.0) -> LoadDraft:
    """Poisson, gamma or constant arrivals with an optional cap; an infinite rate is a closed loop with the cap, or
    with all requests at once."""
    if rate is None or math.isinf(rate):
        return {"type": "concurrency", "concurrency": cap or requests}
    load: LoadDraft = {"type": "poisson", "rate": tidy(rate)}
    if cv == 0:  # vLLM's --burstiness inf
        load = {"type": "constant", "rate": tidy(rate)}
    elif cv != 1:
        load = {"type": "gamma", "rate": tidy(rate), "cv": cv}
    return load if cap is None else {**load, "max_concurrency": cap}


def url_of(base: str | None, host: str, port: int | None) -> str:
    """The address of a server by its base, or by host and port."""
    if base:
        return base.rstrip("/")
    bare = host if ":" not in host or host.startswith("[") else f"[{host}]"
    whole = bare if bare.startswith(("http://", "https://")) else f"http://{bare}"
    return whole if port is None else f"{whole}:{port}"


def about(length: int, ratio: float) -> Any:
    """A length, or the range of lengths from `ratio` below to `ratio` above it, as in vLLM's random dataset."""
    if not ratio:
        return length
    return f"{max(1, math.floor(length * (1 - ratio)))}-{math.ceil(length * (1 + ratio))}"


def below(most: int, ratio: float) -> Any:
    """Lengths from a share of the given length up to it, as in sglang."""
    least = max(1, math.floor(most * ratio))
    return most if least >= most else f"{least}-{most}"


def bell(mean: float, std: float | None, least: float | None, most: float | None, shape: str = "normal") -> Any:
    """Lengths around a mean: fixed without a deviation, else normal (or another shape) within bounds."""
    if not std:
        return tidy(mean)
    lengths: dict[str, JsonValue] = {"type": shape} if shape != "normal" else {}
    lengths |= {"mean": tidy(mean), "std": tidy(std)}
    return lengths | {name: tidy(value) for name, value in (("min", least), ("max", most)) if value is not None}


def tidy(value: float) -> float:
    """2.0 as 2."""
    return int(value) if float(value).is_integer() else value


def _turns(plan: PlanDraft) -> float:
    """Mean turns per session; 1 for conversations of a file that are sent as one prompt."""
    turns = plan.get("workload", {}).get("turns") or 1
    return 1.0 if turns in ("single", "whole", "pieces", "questions") else Lengths.of(turns).mean_value or 1.0


def of_sessions(plan: PlanDraft, notes: list[str]) -> PlanDraft:
    """The plan with rates divided by the turns per session: other tools use request rates, we use session rates."""
    turns = _turns(plan)
    load = plan.get("load", {})
    if turns == 1 or not ("rate" in load or any("rate" in stage for stage in load.get("stages", ()))):
        return plan
    notes.append(f"rates are of sessions of {turns:g} turns: request rate / {turns:g}")
    slower = _slower(load, turns)
    if "stages" in load:
        slower["stages"] = [_slower(stage, turns) for stage in load["stages"]]
    return {**plan, "load": slower}


def experiment(plan: PlanDraft, varied: ExperimentDraft, notes: list[str], *, scaled: bool = True) -> ExperimentDraft:
    """The experiment over a plan without its load, with request rates converted to session rates where necessary.
    None if nothing is varied."""
    if not varied:
        return {}
    if plan.get("outputs"):
        notes.append(NO_FILES)
        plan = copy.copy(plan)
        del plan["outputs"]
    turns = _turns(plan)
    turns = turns if scaled else 1.0
    made: ExperimentDraft = {"plan": plan, **varied}
    if "axes" in varied:
        made["axes"] = _slower_rates(varied["axes"], turns)
    if "zip" in varied:
        made["zip"] = _slower_rates(varied["zip"], turns)
    high = varied["levels"].get("high") if "levels" in varied else None
    if turns != 1 and isinstance(high, dict) and "rate" in (burst := high.get("load", {})):
        made["levels"] = {**varied["levels"], "high": {**high, "load": _slower(burst, turns)}}
    return made


def _slower_rates(varied: Mapping[str, Sequence[Setting]], turns: float) -> dict[str, Sequence[Setting]]:
    return {
        path: [tidy(round(cast(float, value) / turns, 6)) for value in values] if path == "load.rate" else values
        for path, values in varied.items()
    }


Level = TypeVar("Level", LoadDraft, StageDraft)


def _slower(level: Level, turns: float) -> Level:
    slower = copy.copy(level)
    if rate := level.get("rate"):
        slower["rate"] = tidy(round(rate / turns, 6))
    if end := level.get("to"):
        slower["to"] = tidy(round(end / turns, 6))
    return slower


def together(first: Any, second: Any) -> Any:
    """The sum of two independent random lengths: means, bounds and variances are added."""
    both = [Lengths.of(first), Lengths.of(second)]
    mean = sum(part.mean_value or 0.0 for part in both)
    if all(part.type == "fixed" for part in both):
        return tidy(mean)
    most = [part.most for part in both]
    return bell(
        mean,
        round(math.sqrt(sum(_deviation(part) ** 2 for part in both)), 3),
        sum(part.least for part in both),
        None if None in most else sum(part or 0 for part in most),
        "lognormal" if "lognormal" in {part.type for part in both} else "normal",
    )


def _deviation(lengths: Lengths) -> float:
    if lengths.type == "uniform":
        return ((lengths.max or 1) - (lengths.min or 1)) / math.sqrt(12)
    return lengths.std or 0.0


def expanded(experiment: ExperimentDraft) -> list[tuple[str, PlanDraft]] | None:
    """The plans of an experiment with their distinguishing parameters; None if its levels are measured first."""
    if "levels" in experiment:
        return None
    if "cases" in experiment:
        return [(str(case["name"]), case["plan"]) for case in experiment["cases"]]
    rows: list[dict[str, Setting]] = [{}]
    group = experiment.get("zip") or {}
    if group:
        rows = [dict(zip(group, values, strict=True)) for values in zip(*group.values(), strict=True)]
    for path, values in (experiment.get("axes") or {}).items():
        rows = [{**row, path: value} for row in rows for value in values]
    common = experiment.get("set") or {}
    made = []
    for row in rows:
        name = " ".join(f"{path.rpartition('.')[2]}={value}" for path, value in row.items())
        made.append((name, _with_paths(experiment["plan"], {**common, **row})))
    return made


def _with_paths(plan: PlanDraft, sets: Mapping[str, Setting]) -> PlanDraft:
    whole = copy.deepcopy(plan)
    for path, value in sets.items():
        *steps, last = path.split(".")
        at: Any = whole
        for step in steps:
            at = at.setdefault(step, {})
        both = isinstance(value, dict) and isinstance(at.get(last), dict)
        at[last] = {**at[last], **cast(JsonObject, value)} if both else value
    return whole


# -- varied ----------------------------------------------------------------------------------------------------------

WORKS = ("plan", "throughput", "latency")
SAME_SETTING = {"target.model": "server.model"}  # two names of one setting, if both vary


def with_parameters(cases: Sequence[CaseDraft]) -> list[CaseDraft]:
    """The plans, with the settings that differ between them as parameters."""
    leaves = [dict(_leaves(next(filter(None, map(case.get, WORKS)), {}))) for case in cases]
    names = dict.fromkeys(name for settings in leaves for name in settings)
    varies = [name for name in names if len({str(settings.get(name)) for settings in leaves}) > 1]
    shown = [name for name in varies if SAME_SETTING.get(name) not in varies]
    return [
        {"name": case["name"], "set": {name: settings[name] for name in shown if name in settings}, **case}
        for case, settings in zip(cases, leaves, strict=True)
    ]


def _leaves(settings: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Single values by path; lists are left out, because a table cannot show them."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        elif not isinstance(value, list):
            yield written((*above, name)), value


# -- shown -----------------------------------------------------------------------------------------------------------


def to_yaml(plan: Plan, given: dict[str, JsonValue]) -> str:
    """The settings that differ from our defaults, and those that the other tool's reader set."""
    shown = _merged(to_mapping(plan), given, to_mapping(plan, full=True))
    return yaml.dump(shown, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110)


def _merged(lean: JsonObject, given: JsonObject, full: JsonObject) -> dict[str, JsonValue]:
    """The lean mapping plus all values that were given, in the order of the full mapping."""
    merged: dict[str, JsonValue] = {}
    for name, value in full.items():
        own, shown = given.get(name), lean.get(name)
        if isinstance(value, dict) and isinstance(own, dict) and isinstance(shown, dict | None):
            inner = _merged(shown or {}, own, value)
            merged |= {name: inner} if inner else {}
        elif name in lean:
            merged[name] = shown
        elif own is not None and value is not None:
            merged[name] = value
    return merged | {name: value for name, value in lean.items() if name not in merged}


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag: how many values follow it (`maybe`: one, if it looks like a value), and why it has no effect, if so."""

    takes: Literal["one", "none", "many", "maybe"] = "one"
    unused: str | None = None


class Given(Settings):
    """The flags of a command line by name. A file that lists flags by name has no dashes before them."""

    def __init__(self, tool: str, values: JsonObject, prefix: str = "--", account: Account | None = None) -> None:
        super().__init__(values, account or Account(tool), prefix)

    def fields(self, name: str) -> dict[str, JsonValue]:
        """A JSON object."""
        value = self.value(name, {})
        try:
            value = json_value(value)[0] if isinstance(value, str) else value
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.wrong(name, "must be a JSON object")
            return {}
        return value

    def pairs(self, name: str, between: str = "=") -> dict[str, str]:
        """`KEY=VALUE KEY=VALUE`."""
        pairs = {}
        for pair in self.several(name):
            key, sign, value = pair.partition(between)
            if not sign:
                self.wrong(name, f"must be KEY{between}VALUE")
            pairs[key.strip()] = value.strip()
        return pairs


def parse(
    tool: str,
    argv: Sequence[str],
    flags: Mapping[str, Flag],
    aliases: Mapping[str, str] | None = None,
    account: Account | None = None,
) -> Given:
    """Parse a command line. Flags that are not in the table are refused."""
    values: dict[str, JsonValue] = {}
    account = account or Account(tool)
    at = 0
    while at < len(argv):
        name, sign, inline = argv[at].partition("=")
        known = _name_of(name, aliases or {})
        at += 1
        if known not in flags:
            account.mistakes.append(f"{tool}: {_unknown(argv[at - 1], known, flags)}")
            at = _next_flag(argv, at)
            continue
        taken, at = _values(flags[known], inline if sign else None, argv, at)
        if taken is None:
            account.mistakes.append(f"{tool}: --{known} needs a value")
        elif isinstance(taken, list) and isinstance(earlier := values.get(known), list):
            values[known] = [*earlier, *taken]
        else:
            values[known] = taken
    return given_of(tool, values, flags, account=account)


def given_of(
    tool: str, values: JsonObject, flags: Mapping[str, Flag], prefix: str = "--", account: Account | None = None
) -> Given:
    """The flags by name; flags without effect are accounted for."""
    given = Given(tool, values, prefix, account)
    for name in values:
        flag = flags.get(name)
        if flag is not None and flag.unused is not None:
            given.no_effect(name, flag.unused)
    return given


def _name_of(arg: str, aliases: Mapping[str, str]) -> str:
    name = arg.lstrip("-").replace("_", "-") if arg.startswith("--") else arg
    return aliases.get(arg, aliases.get(name, name))


def _unknown(arg: str, name: str, flags: Mapping[str, Flag]) -> str:
    if not arg.startswith("-"):
        return f"expected a flag, got {arg}"
    close = difflib.get_close_matches(name, flags, n=1)
    return f"{arg} is not a known flag" + (f"; did you mean --{close[0]}?" if close else "")


def _next_flag(argv: Sequence[str], at: int) -> int:
    while at < len(argv) and not argv[at].startswith("--"):
        at += 1
    return at


def _values(flag: Flag, inline: str | None, argv: Sequence[str], at: int) -> tuple[Any, int]:
    """The values of a flag, and the index of the next flag."""
    if flag.takes == "none":
        return (True if inline is None else inline), at
    if flag.takes == "many":
        end = _next_flag(argv, at)
        return ([inline] if inline is not None else []) + list(argv[at:end]), end
    if inline is not None:
        return inline, at
    follows = at < len(argv) and not argv[at].startswith("--")
    if flag.takes == "maybe" and not follows:
        return True, at
    return (argv[at], at + 1) if follows else (None, at)
