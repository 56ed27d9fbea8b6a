"""From a path or URL to rows: fetched, unpacked, turned from columns to lines where needed, and indexed."""

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import orjson

from inferometer.errors import DataError
from inferometer.workload.cache import cached_path, fingerprint, locked, replacing
from inferometer.workload.fetch import Say, fetch, is_url
from inferometer.workload.rows import FileRows, RowError, Rows, json_row, text_row

_UNPACK: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
csv.field_size_limit(1 << 30)  # a prompt may be longer than the 128 kB that Python thinks enough
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
MOST_UNPACKED = 1 << 30  # bytes that any packed file may grow to
MOST_GROWTH = 200  # times its own size, beyond that: text shrinks to a tenth or a fiftieth
_BATCH = 4096  # rows of a Parquet file that are in memory at once


def local_file(place: str, sha256: str | None, say: Say) -> Path:
    """The file that a plan names, fetched where it is a URL, unpacked where it is packed."""
    path = fetch(place, sha256, say) if is_url(place) else Path(place).expanduser()
    if not path.exists():
        raise DataError(f"{path}: there is no such file", "workload.path is taken from the folder you are in")
    if path.is_dir():
        raise DataError(f"{path}: is a folder", f"name a file in it: {_some_files(path)}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty", "was it fetched or written to its end?")
    return _unpacked(path) if path.suffix in _UNPACK else path


def _some_files(folder: Path) -> str:
    names = sorted(each.name for each in folder.iterdir() if each.is_file())
    return ", ".join(names[:5]) or "it has none"


def _unpacked(path: Path) -> Path:
    """The unpacked file in the cache: only there can a row be reached without reading all before it."""
    place = cached_path("unpacked", "file", *fingerprint(path)) / path.stem
    with locked(place):
        if not place.exists():
            try:
                with _UNPACK[path.suffix](path) as packed, replacing(place) as file:
                    _copy(packed, file, path)
            except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
                raise DataError(f"{path}: cannot be unpacked: {error}", "is the file complete?") from None
    return place


def _copy(packed: Any, file: Any, path: Path) -> None:
    """Unpack; what grows beyond all that text does is no data but a trap for disks."""
    size, most = 0, max(MOST_GROWTH * path.stat().st_size, MOST_UNPACKED)
    while piece := packed.read(1 << 20):
        size += len(piece)
        if size > most:
            text = f"{path}: cannot be unpacked: it grows to more than {MOST_GROWTH} times its size"
            raise DataError(text, "is it what it should be? unpack it by hand and name the unpacked file")
        file.write(piece)


def open_rows(place: str, *, as_lines: bool = False, sha256: str | None = None, say: Say = lambda _text: None) -> Rows:
    """The rows of a file by what it is: `as_lines` for text, else CSV, TSV, Parquet, a JSON array or a row per line."""
    path = local_file(place, sha256, say)
    name = place if is_url(place) else str(Path(place))
    if as_lines:
        return FileRows(path, "lines", text_row, name)
    if path.suffix in _SEPARATORS:
        return _csv_rows(path, name)
    if path.suffix == ".parquet":
        return FileRows(_parquet_as_lines(path, say), "lines", json_row, name)
    return FileRows(path, "array" if _starts_with(path, b"[") else "lines", json_row, name)


def _starts_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(mark)


def _csv_rows(path: Path, name: str) -> Rows:
    """Rows as mappings from the names in the first row."""
    separator = _SEPARATORS[path.suffix]
    try:
        names = _fields(FileRows(path, "csv", bytes, name).raw(0), separator)
    except RowError as error:
        raise DataError(f"{name}: row 1 {error}", "the first row names the columns") from None
    if len(set(names)) < len(names):
        raise DataError(f"{name}: row 1 names a column twice: {', '.join(names)}", "give each column its own name")

    def decode(data: bytes) -> dict[str, str]:
        values = _fields(data, separator)
        if not values:
            raise RowError("is empty")
        if len(values) != len(names):
            raise RowError(f"has {len(values)} columns, the heading has {len(names)} (a quote that is not closed?)")
        return dict(zip(names, values, strict=True))

    return FileRows(path, "csv", decode, name, first=1)


def _fields(data: bytes, separator: str) -> list[str]:
    lines = io.StringIO(text_row(data), newline="")
    try:
        return next(csv.reader(lines, delimiter=separator), [])
    except csv.Error as error:
        raise RowError(f"is not a row of CSV: {error}") from None


def _parquet_as_lines(path: Path, say: Say) -> Path:
    """The file as JSON lines in the cache. A row of Parquet can only be had with the thousands around it."""
    place = cached_path("lines", f"{path.name}.jsonl", *fingerprint(path))
    with locked(place):
        if not place.exists():
            say(f"reading {path.name} into the cache, once")
            _write_lines(path, place)
    return place


def _write_lines(path: Path, place: Path) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        source = parquet.ParquetFile(path)
        with replacing(place) as file:
            for batch in source.iter_batches(_BATCH):
                file.writelines(_line(row) for row in batch.to_pylist())
    except (pyarrow.ArrowException, OSError) as error:
        hint = "is it complete? Parquet begins and ends with PAR1; CSV and JSONL have endings of their own"
        raise DataError(f"{path}: is not a Parquet file that can be read: {error}", hint) from None


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=str, option=orjson.OPT_APPEND_NEWLINE)
