"""A file as data (JSON, JSON lines, YAML, CSV or text, recognised by its content), and which tool's format it is."""

import csv
import io
import mmap
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from inferometer.documents.files import GZIP, binary_kind, file_bytes, text_in, unpacked
from inferometer.documents.json_text import LARGE, RefusedError, json_value, large_lines, large_value
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import DataError
from inferometer.exchange.importing.source import ImportFormat, ResultRow, SiblingError, Source
from inferometer.vocabulary import attribute_at

# -- recognise -------------------------------------------------------------------------------------------------------

_HERE = "inferometer.exchange.importing"
FORMATS: dict[str, str] = {
    "vllm-bench-serve": f"{_HERE}.vllm:SERVE",
    "vllm-bench-latency": f"{_HERE}.vllm:LATENCY",
    "vllm-bench-throughput": f"{_HERE}.vllm:THROUGHPUT",
    "vllm-bench-startup": f"{_HERE}.vllm:STARTUP",
    "sglang-bench-serving": f"{_HERE}.sglang:SERVING",
    "guidellm": f"{_HERE}.guidellm:REPORT",
    "inference-perf": f"{_HERE}.inference_perf:LIFECYCLE",
    "inference-perf-requests": f"{_HERE}.inference_perf:REQUESTS",
    "aiperf": f"{_HERE}.aiperf:AIPERF",
    "aiperf-requests": f"{_HERE}.aiperf:REQUESTS",
    "genai-perf": f"{_HERE}.aiperf:GENAI_PERF",
    "genai-bench": f"{_HERE}.genai_bench:RUN",
    "fmperf": f"{_HERE}.request_tables:TABLE",
    "llmperf": f"{_HERE}.llmperf:SUMMARY",
    "llmperf-responses": f"{_HERE}.llmperf:RESPONSES",
    "mlperf": f"{_HERE}.mlperf:SUMMARY",
    "llm-d-report": f"{_HERE}.llmd:REPORT",
    "llm-d-treatments": f"{_HERE}.llmd:TABLE",
    "ci-bench-latency": f"{_HERE}.ci_bench:LATENCY",
    "ci-bench-online": f"{_HERE}.ci_bench:ONLINE",
    "ci-bench-concurrency": f"{_HERE}.ci_bench:CONCURRENCY",
    "ray-serve-sweep": f"{_HERE}.sglang:SERVE",
    "ray-vllm-sweep": f"{_HERE}.sglang:ENGINE",
    "nm-vllm": f"{_HERE}.nm_vllm:RESULT",
    "inferx": f"{_HERE}.request_tables:METRICS",
}
MOST_KEYS = 8


def format_named(name: str) -> ImportFormat:
    if name not in FORMATS:
        raise DataError(f"there is no format {name!r}", f"there are {', '.join(FORMATS)}")
    return _loaded(name)


@cache
def _loaded(name: str) -> ImportFormat:
    loaded: ImportFormat = attribute_at(FORMATS[name])
    return loaded


def recognise(source: Source) -> str:
    """The format of a file; a file of no known format is refused with a guess of what it is."""
    for name in FORMATS:
        if _fits(_loaded(name), source):
            return name
    what, hint = looks_like(source)
    if hint == _NEEDS_SIBLING:
        raise SiblingError(f"{source.name}: {what}", hint)
    raise DataError(f"{source.name}: {what}, which is not a supported result", hint)


def _fits(candidate: ImportFormat, source: Source) -> bool:
    """Whether a file has a format. It may contain anything: an error in the test means that it does not."""
    try:
        return candidate.fits(source)
    except (ArithmeticError, AttributeError, DataError, LookupError, TypeError, ValueError):
        return False


def check_format(name: str, source: Source) -> None:
    """Check that the file has the named format."""
    if _fits(_loaded(name), source):
        return
    what, _ = looks_like(source)
    other = next((known for known in FORMATS if _fits(_loaded(known), source)), None)
    hint = f"it is {other}: leave --format out" if other else f"there are {', '.join(FORMATS)}"
    raise DataError(f"{source.name}: is no result of {_loaded(name).title}: it is {what}", hint)


def looks_like(source: Source) -> tuple[str, str]:
    """What an unsupported file is, judging by its content, and what to do with it."""
    known = next(((what, hint) for fits, what, hint in _FOREIGN if fits(source)), None)
    every = f"there are {', '.join(FORMATS)}; --format names one"
    return known if known is not None else (_shape(source), every)


def _shape(source: Source) -> str:
    match source.form:
        case "csv":
            columns = source.columns()
            unread = (
                f"a table whose rows cannot be read ({source.broken[0]})" if source.broken else "a table without rows"
            )
            return f"a table with the columns {_some(columns)}" if columns else unread
        case "text":
            return f"text that begins with {source.value.strip().splitlines()[0][:60]!r}"
        case _ if isinstance(source.value, Mapping):
            return f"{source.form.upper()} with the keys {_some(source.value)}"
    rows = source.rows()
    if rows:
        return f"{source.form.upper()}, a list of objects with the keys {_some(rows[0].fields)}"
    return "a list" if isinstance(source.value, list) else f"{source.form.upper()} that holds only {source.value!r:.60}"


def _some(names: Any) -> str:
    listed = [str(name) for name in names]
    rest = len(listed) - MOST_KEYS
    return ", ".join(listed[:MOST_KEYS]) + (f" and {rest} more" if rest > 0 else "")


def _keys(source: Source) -> set[str]:
    rows = source.rows()
    return set(map(str, rows[0].fields)) if rows else set()


def _is_ours(source: Source) -> bool:
    return str(source.mapping().get("schema", "")).startswith("inferometer/")


def _is_prometheus(source: Source) -> bool:
    return source.form == "text" and source.value.lstrip().startswith(("# HELP", "# TYPE"))


_NEEDS_SIBLING = "it is read together with its result file: give the folder, or the result file"
_FOREIGN = (
    (_is_ours, "a file of an Inferometer run", "give the run's folder to inferometer show"),
    (_is_prometheus, "metrics of a server in Prometheus' text", "not a benchmark result"),
    (
        lambda s: "conversations" in _keys(s),
        "conversations in ShareGPT's schema",
        "use it as a workload: workload.path",
    ),
    (lambda s: {"timestamp", "input_length", "output_length"} <= _keys(s), "a trace", "replay it: workload.path"),
    (lambda s: {"TIMESTAMP", "ContextTokens"} <= _keys(s), "a trace of Azure's", "replay it: workload.path"),
    (lambda s: {"ts", "mem_used_mb"} <= _keys(s), "InferX's gpu_memory.csv", _NEEDS_SIBLING),
    (lambda s: "traffic_scenario" in s.mapping(), "the metadata of a genai-bench experiment", _NEEDS_SIBLING),
    (
        lambda s: s.mapping().get("load_summary") == {} and "successes" in s.mapping(),
        "server-side metrics of inference-perf",
        _NEEDS_SIBLING,
    ),
    (lambda s: {"$defs", "properties"} <= set(s.mapping()), "a JSON schema", "give a result file written by it"),
    (lambda s: {"workload", "load"} & set(s.mapping()), "a plan", "run it: inferometer run FILE"),
    (lambda s: {"object", "data"} == set(s.mapping()), "a server's list of models", "not a benchmark result"),
    (lambda s: set(s.mapping()) == {"error"}, "a server's error", "not a benchmark result"),
)

# -- reading ---------------------------------------------------------------------------------------------------------

MOST_BYTES = 2 * 2**30  # of one result; larger files are logs
_MOST_OTHER = f"JSON is read up to {MOST_BYTES / 2**30:.0f} GiB, tables, YAML and text up to {LARGE / 2**20:.0f} MiB"


def read_source(path: Path) -> Source:
    try:
        content = _content(path)
    except RefusedError as error:
        raise DataError(f"{path}: {error.sentence}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    name = path.name.removesuffix(".gz")
    return parse(name, content, str(path), _sibling_reader(path))


def _content(path: Path) -> bytes | mmap.mmap:
    """The content of a file; large files, also decompressed ones, are mapped instead of loaded."""
    if LARGE < path.stat().st_size <= MOST_BYTES and path.is_file():
        with path.open("rb") as file:
            if file.read(len(GZIP)) != GZIP:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    content = unpacked(file_bytes(path, MOST_BYTES), MOST_BYTES)
    if len(content) <= LARGE:
        return content
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _sibling_reader(path: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        """A file next to the result; None if it is missing or unreadable, because it is optional."""
        try:
            file = path.parent / name
            return unpacked(file_bytes(file, MOST_BYTES), MOST_BYTES) if file.is_file() else None
        except (OSError, ValueError):
            return None

    return read


def parse(
    name: str,
    content: bytes | mmap.mmap,
    where: str | None = None,
    sibling: Callable[[str], bytes | None] = lambda _name: None,
) -> Source:
    """The parsed content of a file."""
    where = where or name
    if len(content) > LARGE and (source := _large(name, content, where, sibling)) is not None:
        return source
    content = bytes(content)
    text = _text(content, where)
    if text.lstrip().startswith(("{", "[")):
        return _json(name, content, text, where, sibling)
    if name.endswith((".yaml", ".yml")) or text.lstrip().startswith("---"):
        return Source(name, content, "yaml", _yaml(text, where), sibling=sibling)
    if name.endswith(".csv") or _looks_like_table(text):
        rows, broken = _rows(text)
        return Source(name, content, "csv", rows, tuple(broken), sibling)
    if _looks_like_yaml(text):
        return Source(name, content, "yaml", _yaml(text, where), sibling=sibling)
    return Source(name, content, "text", text, sibling=sibling)


def _large(name: str, content: bytes | mmap.mmap, where: str, sibling: Callable[[str], bytes | None]) -> Source | None:
    """Parse a large file of JSON or JSON lines; long lists stay unparsed text. Other large files are refused. None if
    the file must be converted to another encoding first."""
    head = bytes(content[:64])
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return None
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")):
        if (kind := binary_kind(head)) is not None:
            raise DataError(f"{where}: is not text but {kind}", "results of other tools are JSON, YAML, CSV or text")
        raise DataError(f"{where}: is too large: {len(content) / 2**20:.0f} MiB", _MOST_OTHER)
    try:
        return Source(name, content, "json", large_value(content), sibling=sibling)
    except msgspec.DecodeError as error:
        lines = large_lines(content, ResultRow)
        if lines is None:
            raise DataError(f"{where}: is not JSON: {error}") from None
    except RefusedError as error:
        raise DataError(f"{where}: is not JSON: {error.sentence}") from None
    return Source(name, content, "jsonl", lines[0], tuple(lines[1]), sibling)


def _text(content: bytes, where: str) -> str:
    if not content.strip():
        raise DataError(f"{where}: is empty")
    hint = "results of other tools are JSON, YAML, CSV or text"
    if (kind := binary_kind(content)) is not None:
        raise DataError(f"{where}: is not text but {kind}", hint)
    try:
        text = text_in(content)
    except RefusedError as error:
        raise DataError(f"{where}: {error.sentence}", error.hint or hint) from None
    if not text.strip():  # empty but for a byte order mark
        raise DataError(f"{where}: is empty")
    return text


def _json(name: str, content: bytes, text: str, where: str, sibling: Callable[[str], bytes | None]) -> Source:
    try:
        return Source(name, content, "json", _unique(text), sibling=sibling)
    except RefusedError as error:
        if not _is_lines(text):
            raise DataError(f"{where}: is not JSON: {error.sentence}") from None
    rows, broken = _lines(text)
    return Source(name, content, "jsonl", rows, tuple(broken), sibling)


def _unique(text: str) -> Any:
    """JSON without duplicate keys: it would be unclear which value was measured."""
    value, twice = json_value(text)
    if twice:
        raise RefusedError(f"{twice[0]} is given twice")
    return value


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object: then every line should be one."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        return isinstance(_unique(first), dict) and bool(rest.strip())
    except RefusedError:
        return False


def _lines(text: str) -> tuple[list[ResultRow], list[str]]:
    rows, broken = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            parsed = _unique(line)
        except RefusedError as error:
            broken.append(f"line {number}: not JSON: {error.text}")
            continue
        if isinstance(parsed, dict):
            rows.append(ResultRow(f"line {number}", parsed))
        else:
            broken.append(f"line {number}: must be an object")
    return rows, broken


def _yaml(text: str, where: str) -> Any:
    try:
        value, twice = yaml_value(text)
    except RefusedError as error:
        raise DataError(f"{where}: is not YAML: {error.sentence}", error.hint) from None
    if twice:
        raise DataError(f"{where}: {twice[0]}", "take one of them out")
    return value


def _looks_like_table(text: str) -> bool:
    head = text.lstrip().partition("\n")[0]
    return head.count(",") >= 3 and ":" not in head.replace("vllm:", "") and "{" not in head


def _looks_like_yaml(text: str) -> bool:
    head = text.lstrip().partition("\n")[0]
    return head.rstrip().endswith(":") or head.startswith("version:")


def _rows(text: str) -> tuple[list[ResultRow], list[str]]:
    """The rows of tables with headers; a repeated header between rows begins a new table."""
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[ResultRow] = []
    broken: list[str] = []
    header: list[str] = []
    for cells in _cells(reader, broken):
        if not any(cell.strip() for cell in cells):
            continue
        if not header or _is_header(cells, header):
            header = [cell.strip() for cell in cells]
        elif len(cells) != len(header):
            broken.append(f"line {reader.line_num}: {len(cells)} fields, but there are {len(header)} columns")
        else:
            rows.append(ResultRow(f"line {reader.line_num}", dict(zip(header, cells, strict=True))))
    return rows, broken


def _cells(reader: Any, broken: list[str]) -> Iterator[list[str]]:
    """The rows of a table, and the names of unreadable rows."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            broken.append(f"line {reader.line_num}: {error}")


def _is_header(cells: list[str], header: list[str]) -> bool:
    """Whether a row is a repeated header, or that of another sweep: its first cell is a column name."""
    return cells[0].strip() == header[0]
