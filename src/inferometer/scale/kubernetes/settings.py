"""The settings of `inferometer k8s run`, from llm-d's LLMDBENCH_* variables with their defaults, a scenario file, and
the command line; each overrides the previous one."""

import re
import secrets
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from inferometer import __version__
from inferometer.documents.document import JsonObject, JsonValue, text_of
from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import RefusedError
from inferometer.errors import PlanError
from inferometer.plan.text import refused

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?\s*[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")
_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^}]*))?\}|([A-Za-z_][A-Za-z0-9_]*))")
_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,38}[A-Za-z0-9])?")  # part of names and labels in the cluster
_AMOUNT = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")  # the API's format of quantities
_PROGRAM = re.compile(r"\$\(|`|<\(")


@dataclass(frozen=True, slots=True)
class Scenario:
    """The variables that a script sets, and its ignored statements."""

    variables: dict[str, str]
    notes: list[str] = field(default_factory=list)


def read_scenario(name: str, environ: Mapping[str, str]) -> Scenario:
    """Read a scenario by path, or from `scenarios` of a parent folder, with or without `.sh`. Later lines may use the
    variables of earlier ones."""
    path = _file(name)
    try:
        text = text_in(file_bytes(path))
    except OSError as error:
        raise PlanError(f"-c {name}: {error.strerror}") from error
    except RefusedError as error:
        raise refused(error, f"-c {name}") from None
    return scenario_in(text, str(path), environ)


def _file(name: str) -> Path:
    names = [name, f"{name}.sh"]
    folders = [Path(), *(above / part for above in [Path(), *Path().resolve().parents] for part in ("scenarios",))]
    places = [folder / candidate for folder in folders for candidate in names]
    for place in places:
        if place.is_file():
            return place
    raise PlanError(f"-c {name}: no such scenario file", "give its path; a scenario sets LLMDBENCH_* variables")


def scenario_in(text: str, where: str, environ: Mapping[str, str]) -> Scenario:
    variables: dict[str, str] = {}
    notes: list[str] = []
    for number, statement in _statements(text):
        assignment = _ASSIGNMENT.fullmatch(statement)
        if assignment is None or _PROGRAM.search(assignment[2]):
            notes.append(f"{where}:{number}: ignored, only assignments are read: {_short(statement)}")
            continue
        try:
            variables[assignment[1]] = _value(assignment[2], {**environ, **variables})
        except ValueError as error:
            notes.append(f"{where}:{number}: not read: {error}: {_short(statement)}")
    return Scenario(variables, notes)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Statements: lines without comments, joined after a backslash or within quotes; the text of a here document
    belongs to its command."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        while line.endswith("\\") or _open_quote(line):
            following = next(lines, None)
            if following is None:
                break
            line = line[:-1] + following[1] if line.endswith("\\") else f"{line}\n{following[1]}"
        if (document := _HERE_DOCUMENT.search(line)) and _open_quote(line) is None:
            for _, inner in lines:
                if inner.strip() == document[1]:
                    break
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _open_quote(line: str) -> str | None:
    quote = None
    for at, letter in enumerate(line):
        if quote is None and letter == "#" and (at == 0 or line[at - 1].isspace()):
            return None
        if quote is None and letter in "\"'":
            quote = letter
        elif letter == quote and line[at - 1 : at] != "\\":
            quote = None
    return quote


def _value(text: str, environ: Mapping[str, str]) -> str:
    """The value that a shell would assign, without running anything: one word with its variables replaced."""
    if text.lstrip().startswith("'"):
        words = shlex.split(text, comments=True)
    else:
        words = shlex.split(_REFERENCE.sub(lambda match: _referenced(match, environ), text), comments=True)
    if len(words) > 1:
        raise ValueError("more than one word")
    return words[0] if words else ""


def _referenced(match: re.Match[str], environ: Mapping[str, str]) -> str:
    value = environ.get(match[1] or match[3]) or match[2] or ""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _short(statement: str) -> str:
    first = statement.strip().splitlines()[0]
    return first if len(first) <= 60 else f"{first[:57]}..."


PREFIX = "LLMDBENCH_"
NEVER_ENDS = 0  # `--wait 0`: start the pods and do not wait
NOP = "nop"  # the harness that sends no load: reads how the stack's pods started
DEFAULT_CLASS = "default"  # llm-d's name for the cluster's default storage class


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of llm-d, without its prefix, and our corresponding setting."""

    name: str
    setting: str
    default: str
    about: str


VARIABLES = (
    Variable("DEPLOY_MODEL_LIST", "models", "meta-llama/Llama-3.2-1B-Instruct", "models, measured in turn"),
    Variable("VLLM_COMMON_NAMESPACE", "namespace", "llmdbench", "namespace of the stack"),
    Variable("HARNESS_NAMESPACE", "harness_namespace", "", "namespace of the launcher pods; default: the stack's"),
    Variable("DEPLOY_METHODS", "methods", "modelservice", "standalone, modelservice, or part of a name"),
    Variable("HARNESS_NAME", "harness", "inference-perf", "tool that the profile belongs to"),
    Variable("HARNESS_EXPERIMENT_PROFILE", "profile", "sanity_random.yaml", "profile: its name or path"),
    Variable("HARNESS_EXPERIMENT_PROFILE_OVERRIDES", "overrides", "", "changes of the profile, k=v,k2=v2"),
    Variable("HARNESS_EXPERIMENT_TREATMENTS", "experiment", "", "file of an experiment"),
    Variable("HARNESS_WAIT_TIMEOUT", "wait_s", "3600", "maximum seconds of the load; 0: do not wait"),
    Variable("CONTROL_WAIT_TIMEOUT", "start_s", "900", "seconds until the launcher pods run"),
    Variable("HARNESS_CONTAINER_IMAGE", "tool_image", "", "image of a tool that has no package; default: fmperf's"),
    Variable("HARNESS_CPU_NR", "cpu", "16", "CPUs of a launcher pod, request and limit"),
    Variable("HARNESS_CPU_MEM", "memory", "32Gi", "memory of a launcher pod, request and limit"),
    Variable(
        "HARNESS_SERVICE_ACCOUNT", "service_account", "", "service account of the launcher pods; default: a new one"
    ),
    Variable("HARNESS_PVC_NAME", "claim", "workload-pvc", "persistent volume claim for results"),
    Variable("HARNESS_PVC_SIZE", "claim_size", "20Gi", "size of the claim, if it does not exist"),
    Variable(
        "VLLM_COMMON_PVC_STORAGE_CLASS", "storage_class", "", "storage class of the claim; default: the cluster's"
    ),
    Variable("RUN_EXPERIMENT_RESULTS_DIR_PREFIX", "results", "/requests", "where the claim is mounted"),
    Variable("RUN_EXPERIMENT_ID", "id", "", "id of the experiment; default: a new one"),
    Variable("HF_TOKEN", "token", "", "Hugging Face token, kept in a secret while the pods run"),
    Variable("VLLM_COMMON_HF_TOKEN_NAME", "token_secret", "llm-d-hf-token", "secret with that token, if it exists"),
    Variable("VLLM_COMMON_HF_TOKEN_KEY", "token_key", "HF_TOKEN", "its key"),
    Variable("VLLM_MODELSERVICE_RELEASE", "release", "llmdbench", "modelservice: infra-<release>-inference-gateway"),
    Variable("HARNESS_STACK_ENDPOINT_URL", "url", "", "URL of the endpoint; skips discovery"),
    Variable("HARNESS_SKIP_RUN", "skip", "0", "1: only collect the results"),
    Variable("HARNESS_DEBUG", "debug", "0", "1: start idle pods to open a shell in"),
    Variable("CONTROL_DRY_RUN", "dry_run", "0", "1: only print the manifests"),
    Variable("CONTROL_WORK_DIR", "output", "", "folder for results and analysis; default: in the store"),
    Variable("CONTROL_VERBOSE", "verbose", "0", "1: more notes"),
)
_WITHOUT_EFFECT = {  # run.sh's variables without effect, with the reason
    "HARNESS_EXECUTABLE": "launcher pods run `inferometer worker`",
    "HARNESS_CONDA_ENV_NAME": "nothing is analysed in a conda environment",
    "HARNESS_PROFILE_HARNESS_LIST": "inferometer profiles lists the profiles",
    "RUN_EXPERIMENT_ANALYZE_LOCALLY": "the analysis is always made here",
    **{f"IMAGE_{part}": "the image is --image, INFEROMETER_IMAGE" for part in ("REGISTRY", "REPO", "NAME", "TAG")},
    **dict.fromkeys(("CLUSTER_URL", "CLUSTER_TOKEN"), "the kubeconfig names the cluster: --kubeconfig, --context"),
}


class RunSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One command line of `inferometer k8s run`."""

    models: list[str]
    namespace: str
    harness_namespace: str
    methods: list[str]
    harness: str
    profile: str
    overrides: list[str] = []
    experiment: str | None = None
    wait_s: int = 3600
    start_s: int = 900
    cpu: str | None = "16"
    memory: str | None = "32Gi"
    service_account: str | None = None
    claim: str = "workload-pvc"
    claim_size: str = "20Gi"
    storage_class: str | None = None
    access_mode: str = "ReadWriteMany"
    results: str = "/requests"
    id: str = ""
    token: str | None = None
    token_secret: str = "llm-d-hf-token"
    token_key: str = "HF_TOKEN"
    release: str = "llmdbench"
    url: str | None = None
    skip: bool = False
    debug: bool = False
    dry_run: bool = False
    output: str | None = None
    verbose: bool = False
    # settings without a variable in run.sh
    pods: int = 1
    attempts: int = 1  # attempts at a treatment whose pods fail
    stop_on_error: bool = False
    generator: Literal["inferometer", "harness"] = "inferometer"  # who sends the load of the profile
    image: str = f"inferometer:{__version__}"
    tool_image: str | None = None
    pull_policy: str | None = None
    group: int | None = None
    node_selector: dict[str, str] = {}
    passed: list[str] = []  # environment variables passed to the pods through a Secret
    keep_s: int = 600  # time to live of Jobs after their end
    variables: dict[str, str] = {}  # all variables, for templates
    notes: list[str] = []

    @property
    def is_unattended(self) -> bool:
        """Whether no client waits for the pods or uses them interactively."""
        return self.wait_s == NEVER_ENDS and not self.debug

    @property
    def deadline_s(self) -> int:
        """The deadline of the Job, which ends it if no client watches it."""
        return self.start_s + (self.wait_s or 3600) + 60


def settings_from(
    environ: Mapping[str, str], scenario: str | None = None, given: JsonObject | None = None
) -> RunSettings:
    """`given` has the settings of the command line by name; unset ones are missing or `None`."""
    variables = {name: value for name, value in environ.items() if name.startswith(PREFIX) and value}
    notes: list[str] = []
    scenario = scenario or variables.get(f"{PREFIX}DEPLOY_SCENARIO")
    if scenario and scenario not in ("none", "none.sh"):
        read = read_scenario(scenario, environ)
        variables |= read.variables
        notes += read.notes
    typed = {name: value for name, value in (given or {}).items() if value is not None}
    values: dict[str, JsonValue] = {
        variable.setting: variables.get(PREFIX + variable.name, variable.default) for variable in VARIABLES
    }
    notes += list(_without_effect(variables))
    if values["storage_class"] == DEFAULT_CLASS:
        values["storage_class"] = ""
    values |= typed
    values["node_selector"] = paired("--launcher-node K=V", cast(Sequence[str], values.pop("launcher_nodes", ())))
    values["id"] = str(values["id"] or f"{int(time.time())}-{secrets.token_hex(2)}")
    names = _namespaces(str(values["namespace"]), text_of(values["harness_namespace"]) or "", typed)
    whole = {name: value for name, value in values.items() if value != ""}
    whole |= {
        "namespace": names[0],
        "harness_namespace": names[1],
        "models": _listed(values["models"]),
        "methods": _listed(values["methods"]),
        "passed": _listed(values.get("passed", "")),
        "overrides": list(_overrides(values["overrides"])),
        "variables": variables,
        "notes": notes,
    }
    for name in ("skip", "debug", "dry_run", "verbose", "stop_on_error"):
        whole[name] = str(whole.get(name, "0")).lower() in ("1", "true", "yes")
    return _checked(whole)


def _checked(values: JsonObject) -> RunSettings:
    try:
        settings = msgspec.convert(values, RunSettings, strict=False)
    except msgspec.ValidationError as error:
        raise PlanError(f"k8s run: {error}") from error
    mistakes = []
    if settings.wait_s < 0 or settings.start_s <= 0:
        mistakes.append("--wait must be at least 0 seconds, and the time until pods run more than 0")
    amounts = {"--cpu": settings.cpu, "--memory": settings.memory, "--pvc-size": settings.claim_size}
    mistakes += wrong_amounts(amounts)
    if settings.pods < 1:
        mistakes.append(f"-j must be at least 1, got {settings.pods}")
    if settings.attempts < 1:
        mistakes.append(f"--treatment-max-attempts must be at least 1, got {settings.attempts}")
    if _ID.fullmatch(settings.id) is None:
        mistakes.append(f"--id must be up to 40 letters, digits, '.', '_' and '-', got {settings.id}")
    if not settings.models or not settings.methods:
        mistakes.append("-m and -t must name at least one model and one method")
    if mistakes:
        raise PlanError(mistakes)
    return settings


def wrong_amounts(amounts: Mapping[str, str | None]) -> Iterator[str]:
    """Errors for invalid quantities, by option."""
    for option, text in amounts.items():
        if text is not None and _AMOUNT.fullmatch(text) is None:
            yield f"{option} must be an amount such as 2, 500m or 32Gi, got {text}"


def paired(option: str, texts: Sequence[str]) -> dict[str, str]:
    """The mapping of repeated `--option NAME=VALUE`."""
    name, _, form = option.partition(" ")
    for text in texts:
        if not text.partition("=")[1]:
            raise PlanError(f"{name} must be {form}, got {text}")
    return dict(text.partition("=")[::2] for text in texts)


def _namespaces(text: str, harness: str, typed: JsonObject) -> tuple[str, str]:
    """`-p A,B`: the namespaces of the stack and of the launchers; B defaults to A."""
    first, _, second = str(text).partition(",")
    other = second if "namespace" in typed else (harness or second)
    return first.strip(), (other or first).strip()


def _listed(value: JsonValue) -> list[str]:
    return list(value) if isinstance(value, list | tuple) else str(value).replace(",", " ").split()


def _overrides(value: Any) -> Iterator[str]:
    yield from ([value] if value else []) if isinstance(value, str) else value


def _without_effect(variables: Mapping[str, str]) -> Iterator[str]:
    for name, why in _WITHOUT_EFFECT.items():
        if variables.get(PREFIX + name, "auto") != "auto":
            yield f"{PREFIX}{name} has no effect: {why}"
