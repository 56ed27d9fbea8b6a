"""A file named by its URL: fetched once into the cache, continued where a connection broke, checked by its SHA-256."""

import hashlib
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from inferometer.errors import DataError
from inferometer.plan.secrets import redacted_url
from inferometer.workload.cache import cached_path, locked

Say = Callable[[str], None]

TRIES = 3  # connections without a single new byte before it is given up
TIMEOUT_S = 30.0
PIECE = 1 << 20
SAY_EVERY_S = 5.0  # a fetch of minutes should not look like a hang, nor fill the screen


class _CutError(Exception):
    """The connection ended before the file did."""


def is_url(place: str) -> bool:
    return place.startswith(("http://", "https://"))


def fetch(url: str, sha256: str | None = None, say: Say = lambda _text: None) -> Path:
    """The file at a URL, from the cache where it is there already. With `sha256` it is what was asked for, or an error.

    The checksum is part of the cache's key: a file in the cache was checked when it came.
    """
    name = unquote(PurePosixPath(urlsplit(url).path).name) or "data"
    place = cached_path("fetched", "file", url, sha256) / name
    if place.exists():
        return place
    with locked(place):
        if not place.exists():
            _fetch_new(url, place, sha256, say)
    return place


def _fetch_new(url: str, place: Path, sha256: str | None, say: Say) -> None:
    part = place.with_name(f"{place.name}.part")
    _download(url, part, say)
    found = _sha256(part)
    if sha256 is not None and found != sha256.lower():
        part.unlink()
        raise DataError(
            f"{redacted_url(url)}: has the SHA-256 {found}, expected {sha256.lower()}",
            "the file was changed or damaged: correct workload.checksum, or fetch it from another place",
        )
    part.replace(place)
    _etag_file(part).unlink(missing_ok=True)
    say(f"fetched {place.name}: {_megabytes(place.stat().st_size)}, SHA-256 {found}, kept in {place.parent}")


def _download(url: str, part: Path, say: Say) -> None:
    """Try until the file is whole; a try that brought something new does not count."""
    tries = 0
    while True:
        before = _size(part)
        try:
            _continue(url, part, say)
            return
        except (_CutError, ConnectionError, TimeoutError, http.client.HTTPException, urllib.error.URLError) as error:
            _refuse_final(url, error)
            tries = 0 if _size(part) > before else tries + 1
            if tries >= TRIES:
                raise _gave_up(url, part, error) from None
            say(f"the connection broke after {_megabytes(_size(part))}, going on from there: {_reason(error)}")
            time.sleep(0.0 if _size(part) > before else 0.2 * 2**tries)


def _continue(url: str, part: Path, say: Say) -> None:
    """Ask for what is missing and append it. A server that ignores the range, or has another file by now, sends all."""
    have = _size(part)
    request = urllib.request.Request(url, headers=_headers(part, have))
    with _open(request) as answer:
        resumed = answer.status == 206 and _starts_at(answer.headers.get("Content-Range"), have)
        if answer.status == 206 and not resumed:
            part.unlink()
            raise _CutError("the server sent another part than was asked for")
        if not resumed:
            _etag_file(part).write_text(answer.headers.get("ETag") or "")
        length = answer.headers.get("Content-Length")
        start = have if resumed else 0
        whole = None if length is None else start + int(length)
        with part.open("ab" if resumed else "wb") as file:
            _copy(answer, file, start, whole, say)


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
        request.remove_header("Range")  # nothing is left of it, or the file became shorter: take it anew
        return urllib.request.urlopen(request, timeout=TIMEOUT_S)


def _copy(answer: IO[bytes], file: IO[bytes], done: int, whole: int | None, say: Say) -> None:
    said_at = time.monotonic()
    while piece := answer.read(PIECE):
        file.write(piece)
        done += len(piece)
        if time.monotonic() - said_at > SAY_EVERY_S:
            said_at = time.monotonic()
            say(f"fetching: {_megabytes(done)}" + (f" of {_megabytes(whole)}" if whole else ""))
    if whole is not None and done < whole:
        raise _CutError(f"{whole - done} bytes are missing")


def _starts_at(content_range: str | None, have: int) -> bool:
    return content_range is None or content_range.removeprefix("bytes ").startswith(f"{have}-")


def _refuse_final(url: str, error: Exception) -> None:
    """Some answers do not become better by asking again."""
    if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code != 429:
        hint = "is the address right?"
        if error.code in {401, 403}:
            hint = "it needs a login: fetch it by hand and name the file in workload.path"
        raise DataError(f"{redacted_url(url)}: the server answered {error.code} {error.reason}", hint) from None


def _gave_up(url: str, part: Path, error: Exception) -> DataError:
    have = f"; {_megabytes(_size(part))} are kept and the next try goes on from there" if _size(part) else ""
    return DataError(
        f"{redacted_url(url)}: could not be fetched: {_reason(error)}{have}",
        "without a network, fetch it elsewhere and name the file in workload.path",
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


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
