"""From a path or URL to rows: downloads and verifies the file once, decompresses it, converts columns to lines if
needed, and indexes it."""

import bz2
import csv
import gzip
import hashlib
import http.client
import io
import lzma
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import orjson

from inferometer.documents.files import MOST_GROWTH
from inferometer.errors import DataError
from inferometer.plan.secrets import redacted_url
from inferometer.vocabulary import size_text
from inferometer.workload.cache import cached_path, fingerprint, locked, replacing
from inferometer.workload.rows import FileRows, RowError, Rows, json_row, text_row

# -- fetch -----------------------------------------------------------------------------------------------------------

Notify = Callable[[str], None]

TRIES = 3  # attempts without a new byte before giving up
TIMEOUT_S = 30.0
PIECE = 1 << 20
NOTIFY_EVERY_S = 5.0  # a long download should neither look like a hang nor fill the screen


class _CutError(Exception):
    """The connection ended before the file did."""


def is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def fetch(url: str, sha256: str | None = None, notify: Notify = lambda _text: None) -> Path:
    """The file at a URL, from the cache if it is there. With `sha256`, a file with another checksum is an error.

    The checksum is part of the cache key: a cached file was verified when it was downloaded.
    """
    name = unquote(PurePosixPath(urlsplit(url).path).name) or "data"
    place = cached_path("fetched", "file", url, sha256) / name
    if place.exists():
        return place
    with locked(place):
        if not place.exists():
            _fetch_new(url, place, sha256, notify)
    return place


def _fetch_new(url: str, place: Path, sha256: str | None, notify: Notify) -> None:
    part = place.with_name(f"{place.name}.part")
    _download(url, part, notify)
    digest = _sha256(part)
    if sha256 is not None and digest != sha256.lower():
        part.unlink()
        raise DataError(
            f"{redacted_url(url)}: has the SHA-256 {digest}, expected {sha256.lower()}",
            "the file was changed or damaged: correct workload.checksum, or download it from another source",
        )
    part.replace(place)
    _etag_file(part).unlink(missing_ok=True)
    notify(f"fetched {place.name}: {size_text(place.stat().st_size)}, SHA-256 {digest}, stored in {place.parent}")


def _download(url: str, part: Path, notify: Notify) -> None:
    """Try until the file is complete; only attempts without new bytes count."""
    tries = 0
    while True:
        before = _size(part)
        try:
            _continue(url, part, notify)
            return
        except (_CutError, ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError) as error:
            _refuse_final(url, error)
            tries = 0 if _size(part) > before else tries + 1
            if tries >= TRIES:
                raise _gave_up(url, part, error) from None
            notify(f"the connection broke after {size_text(_size(part))}, resuming: {_reason(error)}")
            time.sleep(0.0 if _size(part) > before else 0.2 * 2**tries)


def _continue(url: str, part: Path, notify: Notify) -> None:
    """Request the missing bytes and append them. A server that ignores the range, or has a new file, sends
    everything."""
    have = _size(part)
    request = urllib.request.Request(url, headers=_headers(part, have))
    with _open(request) as answer:
        resumed = answer.status == 206 and _starts_at(answer.headers.get("Content-Range"), have)
        if answer.status == 206 and not resumed:
            part.unlink()
            raise _CutError("the server sent a different range than requested")
        if not resumed:
            _etag_file(part).write_text(answer.headers.get("ETag") or "")
        length = answer.headers.get("Content-Length")
        start = have if resumed else 0
        whole = None if length is None else start + int(length)
        with part.open("ab" if resumed else "wb") as file:
            _copy_answer(answer, file, start, whole, notify)


def _headers(part: Path, have: int) -> dict[str, str]:
    headers = {"User-Agent": "inferometer", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if etag := _text(_etag_file(part)):
            headers["If-Range"] = etag
    return headers


def _open(request: urllib.request.Request) -> Any:
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not request.has_header("Range"):
            raise
        request.remove_header("Range")  # nothing is missing, or the file became shorter: download it again
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def _copy_answer(answer: IO[bytes], file: IO[bytes], done: int, whole: int | None, notify: Notify) -> None:
    notified_at = time.monotonic()
    while piece := answer.read(PIECE):
        file.write(piece)
        done += len(piece)
        if time.monotonic() - notified_at > NOTIFY_EVERY_S:
            notified_at = time.monotonic()
            notify(f"fetching: {size_text(done)}" + (f" of {size_text(whole)}" if whole else ""))
    if whole is not None and done < whole:
        raise _CutError(f"{whole - done} bytes are missing")


def _starts_at(content_range: str | None, have: int) -> bool:
    return content_range is None or content_range.removeprefix("bytes ").startswith(f"{have}-")


def _refuse_final(url: str, error: Exception) -> None:
    """Raise an error for responses that a retry does not change."""
    if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
        hint = "is the address right?"
        if error.code in {401, 403}:
            hint = "it needs a login: download it manually and set workload.path"
        raise DataError(f"{redacted_url(url)}: the server answered {error.code} {error.reason}", hint) from None


def _gave_up(url: str, part: Path, error: Exception) -> DataError:
    have = f"; {size_text(_size(part))} are stored and the next attempt resumes" if _size(part) else ""
    return DataError(
        f"{redacted_url(url)}: download failed: {_reason(error)}{have}",
        "without a network, download it elsewhere and set workload.path",
    )


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _etag_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.etag")


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text()
    return ""


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


# -- files -----------------------------------------------------------------------------------------------------------

_UNPACK: dict[str, Callable[[Path], AbstractContextManager[Any]]] = {
    ".gz": gzip.GzipFile,
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}
csv.field_size_limit(1 << 30)  # a prompt may be longer than Python's limit of 128 kB
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
MOST_UNPACKED = 1 << 30  # bytes: every compressed file may grow to this size
_BATCH = 4096  # rows of a Parquet file that are in memory at once


def local_file(place: str, sha256: str | None, notify: Notify) -> Path:
    """The file that a plan names, downloaded if it is a URL, decompressed if necessary."""
    path = fetch(place, sha256, notify) if is_url(place) else Path(place).expanduser()
    if not path.exists():
        raise DataError(f"{path}: file not found", "workload.path is relative to the current directory")
    if path.is_dir():
        raise DataError(f"{path}: is a folder", f"name a file in it: {_some_files(path)}")
    if path.stat().st_size == 0:
        raise DataError(f"{path}: is empty", "is the file complete?")
    return _unpacked(path) if path.suffix in _UNPACK else path


def _some_files(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    return ", ".join(names[:5]) or "it has none"


def _unpacked(path: Path) -> Path:
    """The decompressed file in the cache, which allows random access to rows."""
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
    """Decompress; refuse files that grow more than text does (decompression bombs)."""
    size, most = 0, max(MOST_GROWTH * path.stat().st_size, MOST_UNPACKED)
    while piece := packed.read(1 << 20):
        size += len(piece)
        if size > most:
            text = f"{path}: cannot be unpacked: it grows to more than {MOST_GROWTH} times its size"
            raise DataError(text, "if it is the right file, unpack it manually and name the unpacked file")
        file.write(piece)


def open_rows(
    place: str, *, as_lines: bool = False, sha256: str | None = None, notify: Notify = lambda _text: None
) -> Rows:
    """The rows of a file by its format: `as_lines` for text, else CSV, TSV, Parquet, a JSON array or a row per line."""
    path = local_file(place, sha256, notify)
    name = place if is_url(place) else str(Path(place))
    if as_lines:
        return FileRows(path, "lines", text_row, name)
    if path.suffix in _SEPARATORS:
        return _csv_rows(path, name)
    if path.suffix == ".parquet":
        return FileRows(_parquet_as_lines(path, notify), "lines", json_row, name)
    return FileRows(path, "array" if _starts_with(path, b"[") else "lines", json_row, name)


def _starts_with(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(mark)


def _csv_rows(path: Path, name: str) -> Rows:
    """Rows as mappings with the names of the first row."""
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


def _parquet_as_lines(path: Path, notify: Notify) -> Path:
    """The file as JSON lines in the cache, because Parquet can only be read in groups of thousands of rows."""
    place = cached_path("lines", f"{path.name}.jsonl", *fingerprint(path))
    with locked(place):
        if not place.exists():
            notify(f"reading {path.name} into the cache, once")
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
