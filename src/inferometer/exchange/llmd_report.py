"""The sections and fields of llm-d's benchmark report, versions 0.1, 0.2 and 0.2.1, for the importer and the exporter.
They are not checked at run time: `number` and `whole` check values when they are read."""

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

from inferometer.documents.document import JsonObject, JsonValue

UnitStatistics = Mapping[str, str | float]  # statistics by name, and their common unit as `units`


class ReportTime(TypedDict, total=False):
    start: datetime | str | float
    end: str | None
    stop: float  # version 0.1 only
    duration: str | float | None


class ReportModel(TypedDict, total=False):
    name: str | None
    quantization: JsonValue


class ReportAccelerator(TypedDict, total=False):
    model: str
    count: int
    parallelism: Mapping[str, int]


class ReportRequests(TypedDict, total=False):
    total: int
    failures: int
    incomplete: int
    input_length: UnitStatistics | None
    output_length: UnitStatistics | None


# -- version 0.1 -----------------------------------------------------------------------------------------------------


class ReportHost(TypedDict, total=False):
    accelerator: list[ReportAccelerator] | None
    type: list[str] | None


class ReportEngine(TypedDict, total=False):
    name: str
    version: str | None
    args: JsonObject | None


class ReportPlatform(TypedDict, total=False):
    engine: list[ReportEngine] | None


class ReportTool(TypedDict, total=False):
    tool: str
    tool_version: str | None


class ReportLoad01(TypedDict, total=False):
    name: str
    type: str | None
    args: JsonObject | None
    metadata: ReportTool


class ReportScenario01(TypedDict, total=False):
    description: str | None
    host: ReportHost | None
    platform: ReportPlatform | None
    model: ReportModel | None
    load: ReportLoad01 | None


class MetricsMetadata(TypedDict, total=False):
    verdict: str | None


class ReportMetrics(TypedDict, total=False):
    time: ReportTime
    requests: ReportRequests
    latency: Mapping[str, UnitStatistics]
    throughput: Mapping[str, float]
    metadata: MetricsMetadata


class Report01(TypedDict, total=False):
    version: str
    scenario: ReportScenario01
    metrics: ReportMetrics


# -- versions 0.2 and 0.2.1 --------------------------------------------------------------------------------------------


class ReportMetadata(TypedDict, total=False):
    schema_version: str
    label: str
    cfg_id: str


class ReportPart(TypedDict, total=False):
    """A component of the stack. The model of an engine is an object, that of a generic component its name."""

    kind: str
    tool: str
    tool_version: str
    role: str
    replicas: int
    model: ReportModel | str
    accelerator: ReportAccelerator | None


class ReportNative(TypedDict, total=False):
    """Settings under the names that the tool itself uses."""

    args: JsonObject
    config: JsonObject


class ReportComponent(TypedDict, total=False):
    metadata: ReportMetadata | None
    standardized: ReportPart | None
    native: ReportNative


class ReportLength(TypedDict, total=False):
    distribution: str
    value: float
    std_dev: float | None
    min: float | None
    max: float | None


class StandardLoad(TypedDict, total=False):
    tool: str
    tool_version: str
    parallelism: int
    source: str
    input_seq_len: ReportLength | None
    output_seq_len: ReportLength | None
    rate_qps: float | None
    concurrency: int | None


class ReportLoad(TypedDict, total=False):
    metadata: ReportMetadata
    standardized: StandardLoad | None
    native: ReportNative


class ReportScenario(TypedDict, total=False):
    stack: list[ReportComponent] | None
    load: ReportLoad | None


class ReportRun(TypedDict, total=False):
    uid: str
    eid: str
    time: ReportTime | None
    description: str | None
    keywords: list[str] | None


class ReportAggregate(TypedDict, total=False):
    requests: ReportRequests | None
    latency: Mapping[str, UnitStatistics | None] | None
    throughput: Mapping[str, UnitStatistics | None] | None


class RequestPerformance(TypedDict, total=False):
    aggregate: ReportAggregate | None


class ReportSessions(TypedDict, total=False):
    total: int
    succeeded: int
    session_duration: UnitStatistics | None
    events_per_session: UnitStatistics | None


class SessionPerformance(TypedDict, total=False):
    sessions: ReportSessions | None


class ObservedComponent(TypedDict, total=False):
    component_label: str
    aggregate: Mapping[str, UnitStatistics | None] | None


class ReportObservability(TypedDict, total=False):
    components: list[ObservedComponent] | None


class ReportResults(TypedDict, total=False):
    request_performance: RequestPerformance | None
    session_performance: SessionPerformance | None
    observability: ReportObservability | None


class Report02(TypedDict, total=False):
    version: str
    run: ReportRun | None
    scenario: ReportScenario
    results: ReportResults
