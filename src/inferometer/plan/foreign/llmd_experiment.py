"""llm-d-benchmark's experiment files: treatments of the stack (setup) times treatments of the workload (run), each a
case."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypedDict, cast

from inferometer.documents.document import JsonObject, JsonValue
from inferometer.documents.json_text import json_value
from inferometer.errors import PlanError
from inferometer.plan.draft import CaseDraft, ExperimentDraft, PlanDraft, ServerDraft, TargetDraft
from inferometer.plan.foreign import inference_perf, llmd, templates
from inferometer.plan.foreign.common import Account, Foreign, NeedsFileError, Settings, without_missing
from inferometer.plan.foreign.shapes import expanded, with_parameters
from inferometer.plan.opening import find_profile, folders, our_folder
from inferometer.plan.reading import file_text, read_mapping
from inferometer.plan.text import as_written

# -- llmd setup ------------------------------------------------------------------------------------------------------

FLAGS = {  # vLLM's flags
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_MAX_MODEL_LEN", "model.maxModelLen"), "max-model-len"),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_BLOCK_SIZE", "model.blockSize"), "block-size"),
    **dict.fromkeys(
        (
            "LLMDBENCH_VLLM_COMMON_TENSOR_PARALLELISM",
            "LLMDBENCH_VLLM_MODELSERVICE_DECODE_TENSOR_PARALLELISM",
            "decode.parallelism.tensor",
            "standalone.parallelism.tensor",
            "vllmCommon.tensorParallelism",
        ),
        "tensor-parallel-size",
    ),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_DATA_PARALLELISM", "decode.parallelism.data"), "data-parallel-size"),
    **dict.fromkeys(
        ("LLMDBENCH_VLLM_COMMON_ACCELERATOR_MEM_UTIL", "model.gpuMemoryUtilization"), "gpu-memory-utilization"
    ),
    **dict.fromkeys(("LLMDBENCH_VLLM_COMMON_MAX_NUM_SEQ", "model.maxNumSeqs"), "max-num-seqs"),
    **dict.fromkeys(
        ("LLMDBENCH_VLLM_COMMON_MAX_NUM_BATCHED_TOKENS", "model.maxNumBatchedTokens"), "max-num-batched-tokens"
    ),
    "LLMDBENCH_VLLM_STANDALONE_VLLM_LOAD_FORMAT": "load-format",
}
MODEL = ("LLMDBENCH_DEPLOY_MODEL_LIST", "LLMDBENCH_DEPLOY_CURRENT_MODEL", "model.name", "model.huggingfaceId")
ONE = ("LLMDBENCH_VLLM_COMMON_REPLICAS", "LLMDBENCH_VLLM_MODELSERVICE_DECODE_REPLICAS", "decode.replicas")
METHOD = ("LLMDBENCH_DEPLOY_METHODS", "deploy_methods")
KV = "vllmCommon.kvTransfer."
FREE = ("vllmCommon.flags.", "vllmCommon.args.")
NOT_MEASURED = ("LLMDBENCH_CONTROL_", "LLMDBENCH_HARNESS_", "LLMDBENCH_IMAGE_", "LLMDBENCH_LLMD_IMAGE_", "images.")


class Collector(Protocol):
    """Collects errors and notes."""

    notes: dict[str, None]
    mistakes: dict[str, None]


def server_of(sets: JsonObject, where: str, reading: Collector) -> PlanDraft:
    """The part of a plan that starts such a stack: one vLLM server. Settings of a cluster are errors."""
    args: dict[str, JsonValue] = {}
    model: str | None = None
    for key, value in sets.items():
        if key in FLAGS:
            args[FLAGS[key]] = value
        elif key in MODEL:
            model = str(value).replace(",", " ").split()[0]
        elif key.startswith(FREE):
            args[key.split(".", 2)[2].replace("_", "-")] = value
        elif key.startswith(KV):
            continue
        elif key.startswith(NOT_MEASURED):
            reading.notes[f"setup: {key} configures llm-d's own jobs and is ignored"] = None
        else:
            _of_cluster(key, value, where, reading)
    if transfer := _kv_transfer(sets):
        args["kv-transfer-config"] = json.dumps(transfer)
    server: ServerDraft = without_missing({"type": "vllm", "model": model, "args": args})
    return {"server": server}


def _of_cluster(key: str, value: Any, where: str, reading: Collector) -> None:
    """Check that the stack is one server: one replica of method standalone."""
    if (key in METHOD and str(value) == "standalone") or (key in ONE and str(value) == "1"):
        return
    text = f"{where}: {key}: {value} has no counterpart: it configures a cluster, and one server is started here"
    reading.mistakes[text] = None


def _kv_transfer(sets: JsonObject) -> dict[str, JsonValue] | None:
    """`vllmCommon.kvTransfer.*` as the JSON of vLLM's own flag; off unless enabled, as in llm-d."""
    settings = {key.removeprefix(KV): value for key, value in sets.items() if key.startswith(KV)}
    if not settings or settings.get("enabled") in (False, "false"):
        return None
    extra = {name.partition(".")[2]: value for name, value in settings.items() if name.startswith("extraConfig.")}
    whole = {
        "kv_connector": settings.get("connector"),
        "kv_role": settings.get("role"),
        "kv_connector_extra_config": extra,
    }
    return {name: value for name, value in whole.items() if value not in (None, {})}


# -- llmd experiment -------------------------------------------------------------------------------------------------

TOOL = "llm-d-benchmark"
NOTHING = "NA"  # the treatment leaves this factor unchanged
_URL = "LLMDBENCH_HARNESS_STACK_ENDPOINT_URL"
_PREFIX = "LLMDBENCH_HARNESS_"
_NAMED = f"{_PREFIX}EXPERIMENT_PROFILE"
_RUNTIME = {  # in addition to the halves
    "reset_caches": "the prefix cache of a started server is reset before each case",
    "treatment_max_attempts": "repeat failed cases with --resume --retry-failed",
    "validate_failures": "failed requests are counted in every run; use limits to allow a number of failures",
    "design": "",  # documentation only
    "experiment": "",
}
OUR_SETTINGS = {  # their names for settings of our profiles
    **dict.fromkeys(("question_len",), "workload.prefix.suffix_tokens"),
    **dict.fromkeys(("system_prompt_len", "prefix-repetition-prefix-len"), "workload.prefix.tokens"),
    **dict.fromkeys(("num_groups", "num_unique_system_prompts"), "workload.prefix.groups"),
    **dict.fromkeys(("num_prompts_per_group", "num_users_per_system_prompt"), "workload.prefix.prompts"),
    **dict.fromkeys(("output_len", "random-output-len"), "workload.output_tokens"),
    "random-input-len": "workload.input_tokens",
    "max-concurrency": "load.concurrency",
    **dict.fromkeys(("num-prompts", "max_requests"), "stop.requests"),
    "model_name": "target.model",
}

Pairs = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class TreatmentRow:
    """One treatment of a half: its name and settings."""

    name: str
    sets: Pairs
    profile: str | None = None


@dataclass(slots=True)
class ExperimentReading:
    """The state while a file is read."""

    where: str
    environ: Mapping[str, str]
    overrides: list[tuple[str, Any]] = field(default_factory=list)  # apply to every treatment, after its own settings
    notes: dict[str, None] = field(default_factory=dict)
    mistakes: dict[str, None] = field(default_factory=dict)

    def settle(self) -> None:
        if self.mistakes:
            hint = (
                "for a running stack, only the run treatments are used: --set target.url=http://HOST:PORT"
                if any("setup" in mistake for mistake in self.mistakes)
                else None
            )
            raise PlanError(list(self.mistakes), hint)


class Half(TypedDict, total=False):
    """The setup or the run of an experiment. Older files have treatments and factors at the top."""

    treatments: list[Any] | dict[str, Any] | None
    factors: list[JsonValue] | None
    constants: JsonValue


class AboutExperiment(TypedDict, total=False):
    name: str | None
    description: str | None
    profile: str | None


class TreatmentFile(Half, total=False):
    experiment: AboutExperiment | None
    setup: Half | None
    run: Half | None
    treatment_stop_on_error: JsonValue


def is_it(mapping: JsonObject) -> bool:
    """Whether a file has treatments in a list or by name, at the top or in one of the halves."""
    halves = [mapping.get(name) for name in ("setup", "run")]
    old = any(isinstance(half, dict) and ("treatments" in half or "factors" in half) for half in halves)
    return old or (isinstance(mapping.get("treatments"), list | dict) and "plan" not in mapping)


def from_mapping(
    mapping: JsonObject,
    where: str,
    environ: Mapping[str, str] = os.environ,
    run_only: bool = False,
    changes: Sequence[str] = (),
) -> Foreign:
    """Every treatment of the setup half with every one of the run half; `changes` (`-o`) apply to all."""
    file = cast(TreatmentFile, mapping)
    reading = ExperimentReading(where, {**environ, **_variables(file)}, templates.changes_in(changes))
    about: AboutExperiment = file.get("experiment") or {}
    _of_runtime(mapping, reading)
    setups = _setups(file, reading, run_only or bool(environ.get(_URL)))
    half: Half = file.get("run") or file
    runs = _treatments(half, "run" if "run" in file else "", reading) or [TreatmentRow("", {})]
    reading.settle()
    if not (about.get("profile") or reading.environ.get(_NAMED) or any(row.profile for row in runs)):
        text = f"no profile is named: experiment.profile, or the variable {_NAMED}"
        raise NeedsFileError(f"{where}: {text}", f"llmdbenchmark run -l HARNESS -w PROFILE -e {where}")
    constants = _constants((file.get("run") or {}).get("constants"))
    cases = list(_cases(setups, runs, constants, about, reading))
    reading.settle()
    whole: ExperimentDraft = {
        "name": about.get("name") or Path(where).stem,
        "about": " ".join(str(about.get("description") or "").split()) or None,
        "cases": with_parameters(cases),
        "budget": {"failures": 1} if file.get("treatment_stop_on_error") else None,
    }
    account = _accounted(mapping)
    account.general += list(reading.notes)
    return Foreign.of(account, {}, without_missing(whole))


def _accounted(mapping: JsonObject) -> Account:
    """Account for every key by name, except for the settings of treatments, which are checked elsewhere."""
    document = Settings(mapping, Account(TOOL))
    for name in ("treatments", "treatment_stop_on_error", *(key for key, why in _RUNTIME.items() if why)):
        document.value(name)
    document.no_effect("design", "describes the design for people")
    for half in ("setup", "run"):
        for name in ("treatments", "factors", "constants"):
            document.section(half).value(name)
        document.section(half).no_effect("levels", "the treatments list them")
    about = document.section("experiment") if isinstance(mapping.get("experiment"), dict) else None
    for name in ("name", "description", "profile", "harness"):
        if about is not None:
            about.value(name)
    return document.account


def _variables(file: TreatmentFile) -> dict[str, str]:
    """Constants of the setup half are environment variables; they may name the profile and the model."""
    constants = _constants((file.get("setup") or {}).get("constants"))
    return {key: str(value) for key, value in constants.items() if key.startswith("LLMDBENCH_")}


def _of_runtime(mapping: JsonObject, reading: ExperimentReading) -> None:
    for name in mapping:
        if _RUNTIME.get(name):
            reading.notes[f"{name}: {_RUNTIME[name]}"] = None
        elif name not in (*_RUNTIME, "setup", "run", "treatments", "treatment_stop_on_error"):
            reading.mistakes[f"{reading.where}: {name} is not a part of an experiment of {TOOL}"] = None


# -- treatments ----------------------------------------------------------------------------------------------------


def _treatments(half: Half, prefix: str, reading: ExperimentReading) -> list[TreatmentRow]:
    """The treatments of a half, in either format."""
    rows = half.get("treatments") or []
    factors = [str(entry) for entry in half.get("factors") or []]
    named = rows.items() if isinstance(rows, dict) else ((None, row) for row in rows)
    treatments = [_treatment(name, row, factors, prefix, reading) for name, row in named]
    return [entry for entry in treatments if entry is not None]


def _treatment(
    name: Any, row: Any, factors: Sequence[str], prefix: str, reading: ExperimentReading
) -> TreatmentRow | None:
    if isinstance(row, dict) and factors and len(row) == 1:  # `- name: "v1,v2"`
        name, row = next(iter(row.items()))
    if isinstance(row, dict):
        sets = {str(key): value for key, value in row.items() if key not in ("name", "profile", "description")}
        return TreatmentRow(str(name or row.get("name") or _joined(prefix, sets.values())), sets, row.get("profile"))
    values = [part.strip().replace("REPLACE_COMMA", ",") for part in str(row).split(",")]
    if len(values) != len(factors):
        text = f"treatment {as_written(row)} has {len(values)} values for {len(factors)} factors"
        listed = f" ({', '.join(factors)})" if factors else ""
        reading.mistakes[f"{reading.where}: {prefix or 'treatments'}: {text}{listed}"] = None
        return None
    sets = {factor: _typed(value) for factor, value in zip(factors, values, strict=True) if value != NOTHING}
    return TreatmentRow(str(name) if name else _joined(prefix, values), sets)


def _joined(prefix: str, values: Any) -> str:
    """The name of a treatment, `run_100_300`, as in llm-d."""
    parts = [prefix, *(str(value) for value in values if value != NOTHING)]
    return "_".join(part.replace(" ", "") for part in parts if part)


def _typed(text: str) -> Any:
    """The value as a number if possible, because it is a number in the profile too."""
    try:
        return json_value(text)[0]
    except ValueError:
        return text


def _constants(entries: Any) -> Pairs:
    """A mapping, a list of mappings, or a list of `{key, value}`."""
    if isinstance(entries, dict):
        return dict(entries)
    constants: Pairs = {}
    for entry in entries or []:
        if isinstance(entry, dict):
            constants |= {entry["key"]: entry.get("value")} if "key" in entry else entry
    return constants


# -- the setup half ------------------------------------------------------------------------------------------------


def _setups(file: TreatmentFile, reading: ExperimentReading, run_only: bool) -> list[tuple[str, PlanDraft]]:
    """The setup treatments, each with its part of the plan: a server, or nothing."""
    half: Half = file.get("setup") or {}
    constants = _constants(half.get("constants"))
    treatments = _treatments(half, "setup", reading)
    if run_only:
        if treatments or constants:
            reading.notes["setup: left out, because the stack is already running; its settings are unknown"] = None
        return [("", {})]
    if not treatments and not constants:
        return [("", {})]
    rows = treatments or [TreatmentRow("", {})]
    return [(row.name, server_of({**constants, **row.sets}, f"{reading.where}: setup", reading)) for row in rows]


# -- the run half --------------------------------------------------------------------------------------------------


def _cases(
    setups: Sequence[tuple[str, PlanDraft]],
    runs: Sequence[TreatmentRow],
    constants: Pairs,
    about: AboutExperiment,
    reading: ExperimentReading,
) -> Iterator[CaseDraft]:
    plans: dict[str, list[tuple[str, PlanDraft]]] = {}
    for row in runs:
        try:
            plans[row.name] = _plans(row, constants, about, reading)
        except PlanError as error:
            reading.mistakes |= dict.fromkeys(error.mistakes)
    for setup, server in setups:
        for row in runs:
            for level, plan in plans.get(row.name, ()):
                name = " ".join(part for part in (setup, row.name, level) if part) or str(about.get("name") or "case")
                yield {"name": name, "plan": _merged(plan, server)}


def _merged(plan: PlanDraft, setup: PlanDraft) -> PlanDraft:
    server = setup.get("server")
    if not isinstance(server, dict):
        return plan
    target: TargetDraft = {**plan.get("target", {})}
    target.pop("url", None)
    if model := server.get("model") or target.get("model"):
        target["model"] = model
    return {**plan, "target": target, "server": server}


def _plans(
    row: TreatmentRow, constants: Pairs, about: AboutExperiment, reading: ExperimentReading
) -> list[tuple[str, PlanDraft]]:
    """The profile with the treatment's settings in the profile's own keys; one run per stage if stages are runs."""
    changes = [(key, value) for key, value in {**constants, **row.sets}.items()]
    name = row.profile or about.get("profile") or reading.environ.get(_NAMED)
    harness = str(about.get("harness") or reading.environ.get(f"{_PREFIX}NAME") or "inference-perf")
    if not name:
        raise PlanError(f"{reading.where}: {row.name}: no profile is named")
    place = _profile(str(name), harness, reading.where, reading.environ)
    if place is None:
        return [("", _of_ours(str(name), harness, changes + reading.overrides, reading))]
    mapping, left_out = _profile_settings(place, reading.environ)
    reading.notes |= dict.fromkeys(left_out)
    mapping, _ = templates.made(mapping, changes, str(place), _may_have(mapping), f"{reading.where}: {row.name}: ")
    mapping, differences = templates.made(mapping, reading.overrides, str(place), _may_have(mapping))
    reading.notes |= dict.fromkeys(differences)
    foreign = llmd.from_mapping(mapping, str(place), reading.environ)
    reading.notes |= dict.fromkeys(foreign.notes)
    if not foreign.is_experiment:
        return [("", foreign.plan)]
    levels = expanded(foreign.experiment)
    if levels is None:
        text = f"{place} measures its own levels, which a treatment cannot: name one load"
        raise PlanError(f"{reading.where}: {row.name}: {text}")
    return levels


def _profile_settings(place: Path, environ: Mapping[str, str]) -> tuple[Any, list[str]]:
    if place.name.endswith(".in"):
        return templates.rendered(file_text(place), environ, str(place))
    mapping, twice = read_mapping(place)
    if twice:
        raise PlanError(twice)
    return mapping, []


def _may_have(mapping: Any) -> Callable[[templates.KeyPath], Any]:
    is_theirs = isinstance(mapping, dict) and llmd.reader_of(mapping) is inference_perf.from_mapping
    return inference_perf.may_have if is_theirs else lambda _path: ()


def _profile(name: str, harness: str, where: str, environ: Mapping[str, str]) -> Path | None:
    """The profile: by path, next to the experiment, in `workload/profiles` of a parent folder, or a profile folder."""
    bare = name.removesuffix(".in").removesuffix(".yaml").removesuffix(".yml")
    names = [name, f"{bare}.yaml.in", f"{bare}.yaml"]
    above = [folder / "workload" / "profiles" for folder in [Path(), *Path(where).resolve().parents]]
    places = [Path(), Path(where).parent]
    places += [place for folder in [*above, *folders(environ), our_folder()] for place in (folder / harness, folder)]
    files = [place / candidate for place in places for candidate in names if (place / candidate).is_file()]
    return next((candidate for candidate in files if _is_theirs(candidate)), None)


def _is_theirs(path: Path) -> bool:
    """Whether it is a template or a harness's own file, and not one of our plans with the same name."""
    if path.name.endswith(".in"):
        return True
    try:
        return llmd.reader_of(read_mapping(path)[0]) is not None
    except PlanError:
        return False


def _of_ours(name: str, harness: str, changes: Sequence[tuple[str, Any]], reading: ExperimentReading) -> PlanDraft:
    """Our own plan with that name and the settings that have a counterpart; other settings are errors."""
    from inferometer.plan.overrides import Override, override, parse_override

    bare = name.removesuffix(".in").removesuffix(".yaml")
    try:
        profile = find_profile(f"{harness}/{bare}", reading.environ)
    except PlanError:
        text = f"{reading.where}: the profile {name} of {harness} is not here"
        raise PlanError(f"{text}: put {bare}.yaml.in into the experiment's folder or a profile folder") from None
    reading.notes[f"no template {bare}.yaml.in was found: the built-in plan {profile.name} is used"] = None
    mapping, _ = read_mapping(profile.path)
    wrong = [key for key, _ in changes if _our_path(key) is None]
    if wrong:
        raise PlanError(
            [
                f"{reading.where}: {key} has no counterpart in the built-in plan {profile.name}; use {bare}.yaml.in"
                for key in wrong
            ]
        )
    made = [Override(parse_override(f"{_our_path(key)}=0").path, value, key) for key, value in changes]
    own = {key: value for key, value in mapping.items() if key not in ("name", "about")}
    return cast(PlanDraft, override(own, made))


def _our_path(key: str) -> str | None:
    return OUR_SETTINGS.get(key.rpartition(".")[2])
