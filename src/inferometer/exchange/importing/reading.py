"""A file as data: JSON, JSON lines, YAML, CSV or text, told by its content; rows that cannot be read are named."""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inferometer.documents.files import binary_kind, file_bytes, text_in
from inferometer.documents.json_text import json_value
from inferometer.documents.refused import RefusedError
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import DataError
from inferometer.exchange.importing.found import Row, Source

MOST_BYTES = 2 * 2**30  # of one result; what is larger is not a result but a log


def read_source(path: Path) -> Source:
    try:
        content = file_bytes(path, MOST_BYTES)
    except RefusedError as error:
        raise DataError(f"{path}: {error.sentence}") from None
    except IsADirectoryError:
        raise DataError(f"{path}: is a folder, not a file") from None
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or str(error)).lower()}") from error
    return parse(path.name, content, str(path), _beside(path))


def _beside(path: Path) -> Callable[[str], bytes | None]:
    def read(name: str) -> bytes | None:
        """None where it is not there or cannot be read: it only adds to the result."""
        try:
            file = path.parent / name
            return file_bytes(file, MOST_BYTES) if file.is_file() else None
        except (OSError, ValueError):
            return None

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
    hint = "results of other tools are JSON, YAML, CSV or text"
    if (kind := binary_kind(content)) is not None:
        raise DataError(f"{where}: is not text but {kind}", hint)
    try:
        text = text_in(content)
    except RefusedError as error:
        raise DataError(f"{where}: {error.sentence}", error.hint or hint) from None
    if not text.strip():  # but for its mark
        raise DataError(f"{where}: is empty")
    return text


def _json(name: str, content: bytes, text: str, where: str, beside: Callable[[str], bytes | None]) -> Source:
    try:
        return Source(name, content, "json", _unique(text), beside=beside)
    except RefusedError as error:
        if not _is_lines(text):
            raise DataError(f"{where}: is not JSON: {error.sentence}") from None
    rows, broken = _lines(text)
    return Source(name, content, "jsonl", rows, tuple(broken), beside)


def _unique(text: str) -> Any:
    """What JSON says, where no key is given twice: nobody could tell which of them was measured."""
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


def _lines(text: str) -> tuple[list[Row], list[str]]:
    rows, broken = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = _unique(line)
        except RefusedError as error:
            broken.append(f"line {number}: not JSON: {error.text}")
            continue
        if isinstance(said, dict):
            rows.append(Row(f"line {number}", said))
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


def _rows(text: str) -> tuple[list[Row], list[str]]:
    """A table with its header; the header again between the rows is no row, and begins a table of its own."""
    reader = csv.reader(io.StringIO(text, newline=""))
    rows: list[Row] = []
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
            rows.append(Row(f"line {reader.line_num}", dict(zip(header, cells, strict=True))))
    return rows, broken


def _cells(reader: Any, broken: list[str]) -> Iterator[list[str]]:
    """The rows of a table; one that cannot be read is named."""
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            broken.append(f"line {reader.line_num}: {error}")


def _is_header(cells: list[str], header: list[str]) -> bool:
    """The same header again, or that of another sweep: its first cell is a column's name."""
    return cells[0].strip() == header[0]
