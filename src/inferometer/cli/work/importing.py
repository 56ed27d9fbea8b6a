"""Stores results of other tools as runs."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click

from inferometer.cli.errors import WRONG_USE, echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.documents.document import JsonObject
from inferometer.errors import DataError
from inferometer.exchange.importing.importer import Imported, Options, import_one
from inferometer.exchange.importing.recognise import FORMATS, format_named
from inferometer.exchange.importing.source import BrokenResult, SiblingError
from inferometer.show.console import console, emit, print_json
from inferometer.show.imported import imports_table
from inferometer.store.store import Store

MOST_NOTES = 3


def import_(
    files: tuple[Path, ...],
    name: str | None,
    tags: tuple[str, ...],
    again: bool,
    dry_run: bool,
    explain: bool,
    list_formats: bool,
    as_json: bool,
    quiet: bool,
    store: str | None,
) -> int:
    if list_formats:
        return _print_formats(as_json)
    if not files:
        raise click.UsageError("no FILE given: name a result file or a folder with results")

    if name is not None:
        format_named(name)  # an unknown name is reported before anything is stored
    if explain:
        return _explain(files, name)
    attempts = Attempts()
    place, options = store_of(store), Options(name, tags, again, dry_run)
    with place.batch():
        for path, below in _progressing(list(_files(files)), shown=not quiet and not as_json):
            attempts.attempt(path, below is None, place, replace(options, below=below))
    return attempts.report(as_json=as_json, quiet=quiet, dry_run=dry_run)


def _explain(files: tuple[Path, ...], name: str | None) -> int:
    """Prints every field of each file and how it was used."""
    from inferometer.exchange.importing.explain import explain_result  # only with --explain

    wrong = False
    for path, below in _files(files):
        try:
            fields = explain_result(path, name)
        except DataError as error:
            if below is None:
                print_message("error", error.message)
            wrong = wrong or below is None
            continue
        echo(f"# {path}")
        for field in fields:
            echo(f"{field.name}: {field.use}" + (f" -> {', '.join(field.where)}" if field.where else ""))
    return WRONG_USE if wrong else 0


class Attempts:
    """The result for every file: imported, failed, or not a result."""

    def __init__(self) -> None:
        self.done: list[Imported] = []
        self.wrong: list[tuple[Path, str, str | None]] = []  # files named by the user: errors
        self.others: list[tuple[Path, str]] = []  # files in a folder that are not results: no errors

    def attempt(self, path: Path, named: bool, store: Store, options: Options) -> None:
        try:
            self.done.append(import_one(path, store, options))
        except SiblingError as error:
            if named:
                self.wrong.append((path, error.message, error.hint))
        except BrokenResult as error:  # an error also in a folder: it is a result, but cannot be read
            self.wrong.append((path, error.message, error.hint))
        except (ArithmeticError, LookupError, MemoryError, RecursionError, TypeError, ValueError) as error:
            what = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self.wrong.append((path, f"{path}: cannot be read ({what})", None))
        except DataError as error:
            if named:
                self.wrong.append((path, error.message, error.hint))
            else:
                self.others.append((path, error.message))

    def report(self, *, as_json: bool, quiet: bool, dry_run: bool) -> int:
        if as_json:
            print_json(self._document(), "import")
        else:
            self._print(dry_run)
        if not quiet:
            self._print_notes()
        for _, message, hint in self.wrong:
            print_message("error", message)
            if hint:
                print_message("hint", hint)
        if not self.done and not self.wrong:
            print_message("error", "no result in a supported format; inferometer import --formats lists the formats")
        return 0 if self.done and not self.wrong else WRONG_USE

    def _document(self) -> JsonObject:
        files: list[JsonObject] = [
            {
                "file": str(imported.path),
                "format": imported.format,
                "found": imported.results,
                "runs": [run.id for run in imported.runs],
                "before": imported.before,
                "broken": imported.broken,
                "notes": imported.notes,
            }
            for imported in self.done
        ]
        wrong = [{"file": str(path), "error": message} for path, message, _ in self.wrong]
        others = [{"file": str(path), "error": message} for path, message in self.others]
        return {"files": files, "failed": wrong, "others": others}

    def _print(self, dry_run: bool) -> None:
        if self.done:
            emit(imports_table(self.done, dry_run), console())
        ids = [run.id for imported in self.done for run in imported.runs]
        if ids:
            echo(f"\nsee one     inferometer show {ids[-1]}\nsee all     inferometer list")

    def _print_notes(self) -> None:
        for imported in self.done:
            for note in imported.notes[:MOST_NOTES]:
                print_message("note", f"{imported.path.name}: {note}")
            for row in imported.broken[:MOST_NOTES]:
                print_message("warning", f"{imported.path.name}: {row}; skipped")
            if (more := len(imported.broken) - MOST_NOTES) > 0:
                print_message("warning", f"{imported.path.name}: {more} more rows are not results; skipped")
        for path, message in self.others[:MOST_NOTES]:
            print_message("note", f"not a result: {message if str(path.name) in message else f'{path}: {message}'}")
        if (more := len(self.others) - MOST_NOTES) > 0:
            print_message("note", f"not a result: {more} more files")


def _files(given: Sequence[Path]) -> Iterator[tuple[Path, Path | None]]:
    """Every file with the folder that was named for it; None if the file itself was named."""
    seen: set[Path] = set()
    for path in given:
        for file, below in _of(path):
            if file not in seen:
                seen.add(file)
                yield file, below


def _of(path: Path) -> Iterator[tuple[Path, Path | None]]:
    if path.is_dir():
        inside = (file for file in sorted(path.rglob("*")) if file.is_file())
        yield from ((file, path) for file in inside if not _is_hidden(file.relative_to(path)))
    elif not path.exists() and any(sign in str(path) for sign in "*?["):
        matches = sorted(Path().glob(str(path)) if not path.is_absolute() else _absolute(path))
        if not matches:
            raise click.UsageError(f"no file matches {path}")
        yield from ((file, None) for file in matches if file.is_file())
    else:
        yield path, None


def _is_hidden(inside: Path) -> bool:
    """Only the path below the given folder counts: the folder itself may be `..` or hidden."""
    return any(part.startswith(".") for part in inside.parts)


def _absolute(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


def _progressing(files: list[tuple[Path, Path | None]], shown: bool) -> Iterator[tuple[Path, Path | None]]:
    """With a progress bar on stderr, for many files and only on a terminal."""
    if not shown or len(files) < 20 or not sys.stderr.isatty():
        yield from files
        return
    with click.progressbar(files, label="importing", file=sys.stderr) as bar:
        yield from bar


def _print_formats(as_json: bool) -> int:
    titles = {name: format_named(name).title for name in FORMATS}
    if as_json:
        print_json({"formats": titles}, "formats")
    else:
        width = max(map(len, titles))
        for name, title in titles.items():
            echo(f"{name:{width}}  {title}")
    return 0
