"""A file as data: JSON, JSON lines, YAML, CSV or text, told by its content; rows that cannot be read are named."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from inferometer.errors import DataError
from inferometer.exchange.importing.found import Row, Source

MOST_BYTES = 2 * 2**30  # of one result; what is larger is not a result but a log


def read_source(path: Path) -> Source:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise DataError(f"{path}: {path.stat().st_size / 2**30:.1f} GiB is too large for a result")
        content = path.read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    return parse(path.name, content, str(path), _beside(path))


def _beside(path: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        file = path.parent / name
        return file.read_bytes() if file.is_file() else None

    return read


def parse(
    name: str, content: bytes, where: str | None = None, beside: Callable[[str], bytes | None] = lambda _name: None
) -> Source:
    """What a file's bytes say."""
    where = where or name
    text = _text(content, where)
    if text.lstrip().startswith(("{", "[")):
        return _json(name, content, text, where, beside)
    if name.endswith((".yaml", ".yml")) or text.lstrip().startswith("---"):
        return Source(name, content, "yaml", _yaml(text, where), beside=beside)
    if name.endswith(".csv") or _looks_like_table(text):
        rows, broken = _rows(text)
        return Source(name, content, "csv", rows, tuple(broken), beside)
    if _looks_like_yaml(text):
        return Source(name, content, "yaml", _yaml(text, where), beside=beside)
    return Source(name, content, "text", text, beside=beside)


def _text(content: bytes, where: str) -> str:
    if not content.strip():
        raise DataError(f"{where}: is empty")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        kind = _binary(content)
        raise DataError(
            f"{where}: is not text but {kind}", "results of other tools are JSON, YAML, CSV or text"
        ) from None


def _binary(content: bytes) -> str:
    known = {b"PAR1": "a Parquet file", b"PK\x03\x04": "a ZIP archive", b"\x1f\x8b": "gzip", b"\x89PNG": "an image"}
    return next((kind for start, kind in known.items() if content.startswith(start)), "bytes")


def _json(name: str, content: bytes, text: str, where: str, beside: Callable[[str], bytes | None]) -> Source:
    try:
        return Source(name, content, "json", json.loads(text), beside=beside)
    except json.JSONDecodeError as error:
        if not _is_lines(text):
            raise DataError(f"{where}: is not JSON: {_said(error, text)}") from None
    rows, broken = _lines(text)
    return Source(name, content, "jsonl", rows, tuple(broken), beside)


def _said(error: json.JSONDecodeError, text: str) -> str:
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return f"it ends early, at line {error.lineno}: was it copied while it was written?"
    return f"line {error.lineno} column {error.colno}: {error.msg.lower()}"


def _is_lines(text: str) -> bool:
    """Whether the first line is a whole object: then every line should be one."""
    first, _, rest = text.lstrip().partition("\n")
    try:
        return isinstance(json.loads(first), dict) and bool(rest.strip())
    except json.JSONDecodeError:
        return False


def _lines(text: str) -> tuple[list[Row], list[str]]:
    rows, broken = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
        except json.JSONDecodeError as error:
            broken.append(f"line {number}: not JSON: {error.msg.lower()}")
            continue
        if isinstance(said, dict):
            rows.append(Row(f"line {number}", said))
        else:
            broken.append(f"line {number}: must be an object")
    return rows, broken


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        at = f"line {mark.line + 1}: " if mark else ""
        raise DataError(f"{where}: is not YAML: {at}{getattr(error, 'problem', None) or error}") from None


def _looks_like_table(text: str) -> bool:
    head = text.lstrip().partition("\n")[0]
    return head.count(",") >= 3 and ":" not in head.replace("vllm:", "") and "{" not in head


def _looks_like_yaml(text: str) -> bool:
    head = text.lstrip().partition("\n")[0]
    return head.rstrip().endswith(":") or head.startswith("version:")


def _rows(text: str) -> tuple[list[Row], list[str]]:
    """A table with its header; the header again between the rows is no row, and begins a table of its own."""
    reader = csv.reader(io.StringIO(text))
    rows: list[Row] = []
    broken: list[str] = []
    header: list[str] = []
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if not header or _is_header(cells, header):
            header = [cell.strip() for cell in cells]
        elif len(cells) != len(header):
            broken.append(f"line {reader.line_num}: {len(cells)} fields, but there are {len(header)} columns")
        else:
            rows.append(Row(f"line {reader.line_num}", dict(zip(header, cells, strict=True))))
    return rows, broken


def _is_header(cells: list[str], header: list[str]) -> bool:
    """The same header again, or that of another sweep: its first cell is a column's name."""
    return cells[0].strip() == header[0]
