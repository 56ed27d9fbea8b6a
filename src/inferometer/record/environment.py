"""`Environment`: where a run was made and what answered, so that two runs can be distinguished. `observe`, `target` and
the importers create it, everything else reads its attributes; JSON is its encoding (`record.encoding`).

A document is written as it was read: `names` keeps the order of its fields and which of them are null, `more` keeps the
fields that this version does not know.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from inferometer.documents.document import JsonValue
from inferometer.record.summary import Startup

SIMULATED = ("simulator", "inferometer")  # names under which the simulator reports itself


class EnvironmentPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an environment."""

    names: tuple[str, ...] = ()  # fields of its document, in their order; empty if it was not read from one
    more: dict[str, JsonValue] = {}  # fields unknown to this version: of older or foreign documents, and tags


def field_names(kind: type[EnvironmentPart]) -> tuple[str, ...]:
    """All fields that its document can have. Used as `names`, it makes unknown ones null in the document instead of
    omitted."""
    return tuple(name for name in kind.__struct_fields__ if name not in EnvironmentPart.__struct_fields__)


# -- this machine ----------------------------------------------------------------------------------------------------


class Machine(EnvironmentPart, frozen=True, kw_only=True):
    """The machine that sent the load."""

    host: str | None = None  # host name
    architecture: str | None = None  # processor architecture: x86_64
    cpu: str | None = None  # model of the processor
    cores: int | None = None  # number of cores
    usable_cores: int | None = None  # cores that this process may use
    cpu_limit: float | None = None  # cgroup CPU limit in cores; null: no limit
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None  # cgroup memory limit; null: no limit
    hypervisor: str | None = None  # name of the hypervisor of a virtual machine
    load_1min: float | None = None  # load average before the run


class GpuDevice(EnvironmentPart, frozen=True, kw_only=True):
    """One GPU of this machine."""

    index: int | None = None  # GPU number, from 0
    name: str | None = None  # NVIDIA H200
    uuid: str | None = None  # UUID of the device
    memory_bytes: int | None = None
    power_limit_w: float | None = None
    max_sm_clock_hz: float | None = None


class GpuDriver(EnvironmentPart, frozen=True, kw_only=True):
    """The GPU driver and its GPUs."""

    driver: str | None = None  # version of the driver
    cuda: str | None = None  # CUDA version that the driver supports
    gpus: list[GpuDevice] = []
    by: str | None = None  # source: NVML, nvidia-smi, amd-smi


class System(EnvironmentPart, frozen=True, kw_only=True):
    """The operating system."""

    name: str | None = None  # Linux
    kernel: str | None = None  # kernel version
    distribution: str | None = None  # distribution and version
    container: str | None = None  # type of container, if any
    clock_source: str | None = None  # kernel clock source: tsc
    clock_resolution_s: float | None = None
    open_files_limit: int | None = None  # maximum open files and connections of a process; null: no limit
    local_ports: str | None = None  # port range of outgoing connections
    frequency_governor: str | None = None  # CPU frequency governor


class PythonVersion(EnvironmentPart, frozen=True, kw_only=True):
    """The Python that Inferometer ran in."""

    version: str | None = None  # Python version
    implementation: str | None = None  # CPython
    packages: dict[str, str | None] = {}  # versions of relevant packages


class GitState(EnvironmentPart, frozen=True, kw_only=True):
    """The git checkout in which the command was run."""

    commit: str | None = None  # commit hash
    changed: bool | None = None  # whether there are uncommitted changes


# -- what answered ---------------------------------------------------------------------------------------------------


class MeasuredTarget(EnvironmentPart, frozen=True, kw_only=True):
    """The target as it describes itself: a server, or an engine in this process."""

    urls: list[str] = []  # URLs; empty for an engine in this process
    engine: str | None = None  # engine, if in this process
    model: str | None = None  # requested model
    models: list[str] = []  # all served models
    server: str | None = None  # engine behind the URL, if it can be detected
    version: str | None = None  # engine version
    commit: str | None = None  # engine commit
    device: str | None = None  # device of an engine in this process
    dtype: str | None = None  # data type of the weights
    max_model_len: int | None = None  # context length in tokens
    vocabulary: int | None = None  # vocabulary size
    time: str | None = None  # `virtual` of a simulated engine
    notes: list[str] = []  # notes about the target

    @property
    def shown_engine(self) -> str | None:
        """The engine as it reported itself."""
        return self.server or self.engine

    @property
    def is_predicted(self) -> bool:
        """Whether a model stood in for the server, in virtual time, and nothing was measured."""
        return self.time == "virtual" and self.server is not None


class ReplicaStart(EnvironmentPart, frozen=True, kw_only=True):
    """One replica of a fleet."""

    name: str | None = None  # name used in messages
    url: str | None = None  # URL
    argv: list[str] = []  # the command
    version: str | None = None  # engine version
    pid: int | None = None  # process id
    ready_s: float | None = None  # seconds until it was ready
    log: str | None = None  # log file
    ended: str | None = None  # how it ended; null: still running


class ServerStart(EnvironmentPart, frozen=True, kw_only=True):
    """How Inferometer started the server, without secrets."""

    type: str | None = None  # vllm, simulator, container, ...
    name: str | None = None  # name used in messages
    url: str | None = None  # URL
    model: str | None = None  # served model
    argv: list[str] = []  # the command
    args: dict[str, JsonValue] = {}  # arguments from the plan
    env: dict[str, JsonValue] = {}  # environment variables from the plan
    version: str | None = None  # engine version
    container: str | None = None  # container id; this and the next four only for a container
    engine: str | None = None  # container program
    image: str | None = None  # image as in the plan
    image_id: str | None = None  # image id on this machine
    digest: str | None = None  # image digest in the registry
    pid: int | None = None  # process id
    started: str | None = None  # wall clock time, ISO 8601 with time zone
    ready_s: float | None = None  # seconds until it was ready
    log: str | None = None  # log file
    run_number: int | None = None  # number of this run among the runs of the server
    prefix_cache_reset: bool | None = None  # whether the prefix cache was reset before this run
    ended: str | None = None  # how it ended; null: still running
    replicas: list[ReplicaStart] = []  # of a fleet, whose own command is that of its router


# -- other sources ---------------------------------------------------------------------------------------------------


class ImportOrigin(EnvironmentPart, frozen=True, kw_only=True):
    """The file that a run was imported from."""

    format: str | None = None  # name of the format
    file: str | None = None  # name of the file
    sha256: str | None = None  # SHA-256 of the file
    part: str | None = None  # part of a file with several runs
    started_by: str | None = None  # source of the start time, if it is not in the file

    @property
    def label(self) -> str | None:
        """Distinguishes the results of one folder: the path below it and the part; None for a file given by name."""
        below = self.file is not None and "/" in self.file
        return " ".join(filter(None, (self.file, self.part))) if self.file and (below or self.part) else None


class ToolVersion(EnvironmentPart, frozen=True, kw_only=True):
    """The tool that measured an imported run."""

    name: str | None = None  # guidellm
    version: str | None = None  # version of the tool


class HarnessRun(EnvironmentPart, frozen=True, kw_only=True):
    """Another load generator that was run in our place."""

    name: str | None = None  # as in --harness
    version: str | None = None  # version of the tool
    argv: list[str] = []  # the command, without secrets
    files: list[str] = []  # files rendered for it, stored with the run
    differences: list[str] = []  # what it does differently from the plan, by setting
    result: str | None = None  # the stored result file
    log: str | None = None  # the stored log
    took_s: float | None = None  # from its start to its end
    ended: str | None = None  # how it ended


class BenchmarkEnd(EnvironmentPart, frozen=True, kw_only=True):
    """How a user's own benchmark ended."""

    exit_code: int | None = None  # null: stopped by Inferometer
    took_s: float | None = None
    ended: str | None = None  # `ended`, `timeout` or `interrupted`


# -- the whole -------------------------------------------------------------------------------------------------------

OBSERVED = ("inferometer", "command", "machine", "gpu", "system", "python", "git", "workers", "target")


class Environment(EnvironmentPart, frozen=True, kw_only=True):
    """Where a run was made. An observed one has the fields up to `target`; others are present if they are known."""

    inferometer: str | None = None  # Inferometer version
    command: str | None = None  # command line without secrets
    machine: Machine | None = None
    gpu: GpuDriver | None = None  # the GPUs of this machine; null: none
    system: System | None = None
    python: PythonVersion | None = None
    git: GitState | None = None
    workers: int | None = None  # number of load generator processes
    target: MeasuredTarget | None = None
    gpus: list[GpuDevice | str] = []  # accelerators of the target, one name per device, from an imported file
    hardware: str | None = None  # hardware as described by its source
    stack: dict[str, JsonValue] = {}  # engine settings from an imported file
    model: str | None = None  # model of a simulated run
    time: str | None = None  # `virtual` of a simulated run
    engine_version: str | None = None  # engine version, if known separately from the target
    commit: str | None = None  # engine commit
    nonce: str | None = None  # random text that keeps prompts of this run out of old caches; not used for datasets
    server: ServerStart | None = None
    startup: Startup | None = None  # startup of a started server, from its log
    log: str | None = None  # log file of a startup
    benchmark: BenchmarkEnd | None = None
    harness: HarnessRun | None = None
    tool: ToolVersion | None = None
    versions: dict[str, JsonValue] = {}  # versions from an imported file
    description: str | None = None  # description of an imported run
    metadata: dict[str, JsonValue] = {}  # other fields of an imported file
    imported: ImportOrigin | None = None

    @property
    def known_target(self) -> MeasuredTarget:
        """The target; empty if nothing is known of it."""
        return self.target or MeasuredTarget()

    @property
    def accelerators(self) -> list[str]:
        """Names of the target's accelerators, one per device: those reported for it (`gpus`), else those of this
        machine (`gpu`), which belong to the target only if it runs here."""
        if self.gpus:
            return [_name(gpu) for gpu in self.gpus]
        return [_name(gpu) for gpu in self.gpu.gpus] if self.gpu and self._serves_here else []

    @property
    def _serves_here(self) -> bool:
        """An offline engine has no address; the simulator uses none of the GPUs."""
        target = self.known_target
        if target.server in SIMULATED or target.engine in SIMULATED:
            return False
        here = self.machine.host if self.machine else None
        return all(is_loopback(host) or host == here for host in map(host_of, target.urls))


def _name(gpu: GpuDevice | str) -> str:
    return gpu if isinstance(gpu, str) else gpu.name or str(gpu.more.get("model") or "?")


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or url
    except ValueError:
        return url


SCHEMA = "inferometer/calibration/1"


class CalibratedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """The properties the error depends on: another CPU, kernel, Python or version needs a curve of its own."""

    cpu: str = ""
    cores: int | None = None
    system: str = ""
    python: str = ""
    inferometer: str = ""


class CalibrationPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One load and the errors at it, in seconds, as absolute values: too early counts as much as too late."""

    streams: int = 0
    interval: float = 0.0  # seconds between two tokens of a stream
    events: int = 0
    events_per_s: float = 0.0
    ttft_error_p50: float | None = None
    ttft_error_p99: float | None = None
    read_error_p50: float | None = None
    read_error_p99: float | None = None
    inside_share: float | None = None  # of the reads, within their stated uncertainty
    unmatched: int = 0
    cpu_s_per_million: float | None = None
    stamps: str | None = None
    metronome_late_p99: float | None = None
    metronome_late: bool = False

    def kept_up(self) -> bool:
        """Errors above a token interval mean that reads are queueing."""
        return self.read_error_p99 is not None and self.read_error_p99 <= self.interval

    def sent_late(self) -> bool:
        """Whether the metronome itself could not send in time: delays at the client are then not its own limit."""
        return self.metronome_late_p99 is not None and self.metronome_late_p99 > self.interval


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The points, where and when they were measured, and the highest rate of events per second that the client kept up
    with."""

    schema: str = SCHEMA
    machine: CalibratedMachine = CalibratedMachine()
    made: str = ""
    points: list[CalibrationPoint] = []
    ceiling_events_per_s: float | None = None
    ceiling_is_at_least: bool = False  # it never fell behind: the true limit may be higher
