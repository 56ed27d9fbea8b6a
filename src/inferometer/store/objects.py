"""Run folders in an object store, `s3://bucket/prefix` or `gs://...`: uploaded when they are finished, the manifest
last, and read back into a local cache on request."""

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from inferometer.errors import MissingExtra, StoreError
from inferometer.record.files import translated_errors
from inferometer.store.folder import is_run_id
from inferometer.store.manifest import MANIFEST, MARKS, Files, files_in, manifest_of, sha256, write_manifest

EXTRAS = {"s3": "s3", "gs": "gs", "gcs": "gs"}  # URL scheme to the extra that supports it
STALE_S = 86400.0
FRESH_NS = 2_000_000_000  # some file systems have a time resolution of two seconds
LARGE = (".parquet", ".bin", ".log")  # fetched on request


class Objects:
    """The object store with a team's run folders."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._fs = _file_system(self.url)

    def at(self, id_: str) -> str:
        """The location of a run, independent of its prefix."""
        return f"{self.url}/runs/{id_}"

    def check_writable(self) -> None:
        """Tested before a run starts: a tiny object is written."""
        with self._translated_errors(self.url):
            self._fs.pipe_file(f"{self.url}/inferometer.txt", b"Inferometer keeps runs here, under runs/.\n")

    def upload(self, folder: Path) -> str:
        """Upload a finished run and return its location. A run without its manifest counts as missing."""
        place = self.at(folder.name)
        if not (folder / MANIFEST).exists():
            write_manifest(folder)
        with self._translated_errors(place):
            for name in manifest_of(folder):
                self._fs.put_file(str(folder / name), f"{place}/{name}")
            if (folder / MARKS).exists():
                self._fs.put_file(str(folder / MARKS), f"{place}/{MARKS}")
            self._fs.put_file(str(folder / MANIFEST), f"{place}/{MANIFEST}")
        return place

    def put(self, file: Path, name: str) -> None:
        """One file below our address."""
        with self._translated_errors(f"{self.url}/{name}"):
            self._fs.put_file(str(file), f"{self.url}/{name}")

    def fetch(self, location: str, folder: Path, *, whole: bool) -> Files:
        """Download a run into the cache: its small files, or all of them. Files with matching facts are not downloaded
        again."""
        files = self.manifest(location)
        with translated_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for name in files:
            if whole or not name.endswith(LARGE):
                self.fetch_file(location, folder, name, files)
        self._fetch_marks(location, folder)
        return files

    def fetch_file(self, location: str, folder: Path, name: str, files: Files) -> Path:
        file, facts = folder / name, files[name]
        if file.exists() and file.stat().st_size == facts.bytes:
            return file
        draft = folder / f".{name}.{os.getpid()}.tmp"
        with self._translated_errors(f"{location}/{name}"):
            self._fs.get_file(f"{location}/{name}", str(draft))
        if sha256(draft) != facts.sha256:
            size = draft.stat().st_size
            draft.unlink()
            hint = "it was changed or truncated after its upload: upload it again from the machine that made the run"
            raise StoreError(f"{location}/{name}: does not match its manifest, it has {size} bytes", hint)
        draft.replace(file)  # no fsync: cached files can be fetched again
        return file

    def manifest(self, location: str) -> Files:
        """Raises if it is missing: the upload was not completed."""
        with self._translated_errors(location):
            try:
                content = self._fs.cat_file(f"{location}/{MANIFEST}")
            except FileNotFoundError:
                raise StoreError(
                    f"{location}: {'incomplete upload: no manifest' if self._is_there(location) else 'no such run'}",
                    "upload it again from the machine that made it: inferometer store reindex",
                ) from None
        return files_in(content, f"{location}/{MANIFEST}")

    def runs(self) -> tuple[list[str], list[str]]:
        """The ids of the complete runs, and of the partially uploaded ones."""
        with self._translated_errors(self.url):
            self._fs.invalidate_cache()
            try:
                paths = self._fs.find(f"{self.url}/runs")
            except FileNotFoundError:
                paths = []
        ids = {path.rsplit("/", 2)[1] for path in paths}
        whole = {path.rsplit("/", 2)[1] for path in paths if path.endswith(f"/{MANIFEST}")}
        return sorted(whole), sorted(ids - whole)

    def write_marks(self, location: str, content: bytes) -> None:
        with self._translated_errors(location):
            self._fs.pipe_file(f"{location}/{MARKS}", content)

    def delete(self, location: str) -> None:
        """The manifest first: a partially deleted run then no longer counts as one."""
        with self._translated_errors(location):
            self._fs.invalidate_cache()
            names = sorted(self._fs.find(location), key=lambda path: not path.endswith(f"/{MANIFEST}"))
            for name in names:
                self._fs.rm_file(name)

    def _is_there(self, location: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.find(location))

    def _fetch_marks(self, location: str, folder: Path) -> None:
        with self._translated_errors(location):
            try:
                (folder / MARKS).write_bytes(self._fs.cat_file(f"{location}/{MARKS}"))
            except FileNotFoundError:
                (folder / MARKS).unlink(missing_ok=True)

    @contextmanager
    def _translated_errors(self, where: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            if not isinstance(error, OSError) and not _is_of_client(error):
                raise
            raise StoreError(f"{where}: {_sentence(error)}", _hint(error)) from error


def upload_files(folder: Path, url: str) -> int:
    """Uploads every file below a folder, under the same names below an address; returns their number."""
    place = Objects(url)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in files:
        place.put(path, str(path.relative_to(folder)))
    return len(files)


def is_object_store(where: str) -> bool:
    scheme, separator, _ = where.partition("://")
    return bool(separator) and scheme in EXTRAS  # a folder may be called s3


def _file_system(url: str) -> Any:
    scheme = url.partition("://")[0]
    try:
        import fsspec

        return fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        raise MissingExtra(f"keeping records at {scheme}://", EXTRAS[scheme]) from None


def _is_of_client(error: Exception) -> bool:
    rooms = ("botocore", "aiobotocore", "aiohttp", "gcsfs", "google", "s3fs", "fsspec")
    return type(error).__module__.partition(".")[0] in rooms


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _hint(error: Exception) -> str | None:
    message = f"{type(error).__name__} {error}".lower()
    if isinstance(error, FileNotFoundError) or "nosuchbucket" in message or "bucket does not exist" in message:
        return "create the bucket first, and check its name"
    denied = ("credential", "forbidden", "access key", "denied", "signature", "unauthor", "anonymous", "403", "401")
    if isinstance(error, PermissionError) or any(cause in message for cause in denied):
        return "check the credentials and rights: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
    if "connect" in message or "resolve" in message or "timeout" in message:
        return "can the object store be reached from here? AWS_ENDPOINT_URL names one of your own"
    return None


def remove_folder(folder: Path) -> None:
    """Renamed first, so that an interrupted deletion leaves no partial run."""
    aside = folder.with_name(f".gone-{folder.name}")
    with translated_errors(folder):
        if folder.exists():
            folder.replace(aside)
        shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(place: Path) -> None:
    """Removes drafts of creations and deletions by killed processes, if they are old enough to be certainly
    abandoned."""
    if (place / "runs").is_dir():
        for path in (place / "runs").glob(".*-*"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_S:
                    shutil.rmtree(path)


def changed_of(folder: Path) -> int | None:
    """When an entry of a folder was last added or removed, in nanoseconds; None if that is so recent that the next
    change might get the same time."""
    try:
        changed_at = folder.stat().st_mtime_ns
    except OSError:
        return None
    return changed_at if time.time_ns() - changed_at > FRESH_NS else None


def folders_in(place: Path, name: str = "runs") -> dict[str, Path]:
    """The run folders by id; hidden ones are drafts, or being deleted."""
    runs = place / name
    if not runs.is_dir():
        return {}
    with translated_errors(runs), os.scandir(runs) as entries:
        paths = [Path(entry.path) for entry in entries if not entry.name.startswith(".")]
    return {path.name: path for path in paths if is_folder_of_run(path)}


def is_folder_of_run(path: Path) -> bool:
    """A folder, or something else with the name of one: it is listed as damaged and not skipped."""
    try:
        return stat.S_ISDIR(path.stat().st_mode) or is_run_id(path.name)
    except OSError:  # a link to itself or to nothing, or access is denied
        return is_run_id(path.name) and os.path.lexists(path)
