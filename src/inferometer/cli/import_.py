"""`inferometer import`: results of other tools as kept runs."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import WRONG_USE, echo, say
from inferometer.cli.options import json_option, quiet_option, store_of, store_option

if TYPE_CHECKING:
    from inferometer.exchange.importing.importer import Imported, Options
    from inferometer.store.store import Store

EXAMPLES = """\b
Examples:
  inferometer import vllm_bench_serve.json
      a result of `vllm bench serve`; with --save-detailed its requests too
  inferometer import results/
      whatever in a folder is a result, whosever it is
  inferometer import fake_db/e2e_benchmark_data.json --tag ci
      every point of a history, each a run at its own time
  inferometer import report.yaml --dry-run
      what it is and what it holds; nothing is kept
  inferometer import --formats
      the formats that are known
"""
MOST_SAID = 3


@click.command("import", epilog=EXAMPLES)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "name", metavar="FORMAT", help="What the files are. [default: told by their content]")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Put a tag on the runs. Repeatable.")
@click.option("--again", is_flag=True, help="Keep a file once more that has been imported already.")
@click.option("--dry-run", is_flag=True, help="Say what would be kept; keep nothing.")
@click.option("--formats", "list_formats", is_flag=True, help="List the formats that are known.")
@json_option
@quiet_option
@store_option
def import_(
    files: tuple[Path, ...],
    name: str | None,
    tags: tuple[str, ...],
    again: bool,
    dry_run: bool,
    list_formats: bool,
    as_json: bool,
    quiet: bool,
    store: str | None,
) -> int:
    """Keep results of other tools as runs, to list, show, compare and chart them like our own.

    FILE is a result, a folder with results, or a pattern such as 'results/*.json'. Formats are told by content.
    """
    if list_formats:
        return _print_formats(as_json)
    if not files:
        raise click.UsageError("no FILE given: name a result, or a folder with results")
    from inferometer.exchange.importing.importer import Options
    from inferometer.exchange.importing.recognise import format_named

    if name is not None:
        format_named(name)  # a mistake in it is told before anything is kept
    found = Attempts()
    place, options = store_of(store), Options(name, tags, again, dry_run)
    with place.batch():
        for path, named in _progressing(list(_files(files)), shown=not quiet and not as_json):
            found.attempt(path, named, place, options)
    return found.report(as_json=as_json, quiet=quiet, dry_run=dry_run)


class Attempts:
    """What became of the files, one by one."""

    def __init__(self) -> None:
        self.done: list[Imported] = []
        self.wrong: list[tuple[Path, str, str | None]] = []  # named by the user: an error
        self.others: list[tuple[Path, str]] = []  # found in a folder: no result, and no error

    def attempt(self, path: Path, named: bool, store: "Store", options: "Options") -> None:
        from inferometer.errors import DataError
        from inferometer.exchange.importing.importer import import_one
        from inferometer.exchange.importing.recognise import BesideError

        try:
            self.done.append(import_one(path, store, options))
        except BesideError as error:
            if named:
                self.wrong.append((path, error.message, error.hint))
        except DataError as error:
            if named:
                self.wrong.append((path, error.message, error.hint))
            else:
                self.others.append((path, error.message))

    def report(self, *, as_json: bool, quiet: bool, dry_run: bool) -> int:
        if as_json:
            from inferometer.cli.printing import print_json

            print_json(self._document(), "import")
        else:
            self._print(dry_run)
        if not quiet:
            self._say()
        for _, message, hint in self.wrong:
            say("error", message)
            if hint:
                say("hint", hint)
        if not self.done and not self.wrong:
            say("error", "no result in it that is known here; inferometer import --formats lists what is")
        return 0 if self.done and not self.wrong else WRONG_USE

    def _document(self) -> dict[str, Any]:
        files = [
            {
                "file": str(each.path),
                "format": each.format,
                "found": each.found,
                "runs": [run.id for run in each.runs],
                "before": each.before,
                "broken": each.broken,
                "notes": each.notes,
            }
            for each in self.done
        ]
        wrong = [{"file": str(path), "error": message} for path, message, _ in self.wrong]
        others = [{"file": str(path), "error": message} for path, message in self.others]
        return {"files": files, "failed": wrong, "others": others}

    def _print(self, dry_run: bool) -> None:
        from inferometer.show.console import console, emit
        from inferometer.show.imported import imports_table

        if self.done:
            emit(imports_table(self.done, dry_run), console())
        ids = [run.id for each in self.done for run in each.runs]
        if ids:
            echo(f"\nsee one     inferometer show {ids[-1]}\nsee all     inferometer list")

    def _say(self) -> None:
        for each in self.done:
            for note in each.notes[:MOST_SAID]:
                say("note", f"{each.path.name}: {note}")
            for row in each.broken[:MOST_SAID]:
                say("warning", f"{each.path.name}: {row}; left out")
            if (more := len(each.broken) - MOST_SAID) > 0:
                say("warning", f"{each.path.name}: {more} more rows are no results; left out")
        for path, message in self.others[:MOST_SAID]:
            say("note", f"no result: {message if str(path.name) in message else f'{path}: {message}'}")
        if (more := len(self.others) - MOST_SAID) > 0:
            say("note", f"no results: {more} more files")


def _files(given: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Every file, and whether it was named itself. A folder stands for all that is in it."""
    seen: set[Path] = set()
    for path in given:
        for file, named in _of(path):
            if file not in seen:
                seen.add(file)
                yield file, named


def _of(path: Path) -> Iterator[tuple[Path, bool]]:
    if path.is_dir():
        inside = (file for file in sorted(path.rglob("*")) if file.is_file())
        yield from ((file, False) for file in inside if not _is_hidden(file.relative_to(path)))
    elif not path.exists() and any(sign in str(path) for sign in "*?["):
        found = sorted(Path().glob(str(path)) if not path.is_absolute() else _absolute(path))
        if not found:
            raise click.UsageError(f"no file fits {path}")
        yield from ((file, True) for file in found if file.is_file())
    else:
        yield path, True


def _is_hidden(inside: Path) -> bool:
    """Below the folder that was given; that one may be `..` or hidden itself."""
    return any(part.startswith(".") for part in inside.parts)


def _absolute(pattern: Path) -> Iterator[Path]:
    return Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor)))


def _progressing(files: list[tuple[Path, bool]], shown: bool) -> Iterator[tuple[Path, bool]]:
    """On a terminal and for many files only, on stderr."""
    if not shown or len(files) < 20 or not sys.stderr.isatty():
        yield from files
        return
    with click.progressbar(files, label="importing", file=sys.stderr) as bar:
        yield from bar


def _print_formats(as_json: bool) -> int:
    from inferometer.exchange.importing.recognise import FORMATS, format_named

    titles = {name: format_named(name).title for name in FORMATS}
    if as_json:
        from inferometer.cli.printing import print_json

        print_json({"formats": titles}, "formats")
    else:
        width = max(map(len, titles))
        for name, title in titles.items():
            echo(f"{name:{width}}  {title}")
    return 0
