"""Writes reports and the static site, and serves the dashboard."""

import os
import socket
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from inferometer.cli.errors import echo, print_message
from inferometer.cli.work.stores import store_of
from inferometer.conduct.report import build_report, name_of, new_token, serve_dashboard
from inferometer.conduct.report import site as write_site
from inferometer.show.console import print_json
from inferometer.show.dashboard.access import is_loopback
from inferometer.show.report.writing import write_report


def report(runs: tuple[str, ...], output: str | None, form: str | None, quiet: bool, as_json: bool, store: Any) -> None:
    kept_in = store_of(store)
    what = build_report(runs or ("latest",), kept_in)
    if output == "-":
        _stream(what, form)
        return
    path = _path(output, form, name_of(what, runs))
    written = write_report(what, path)
    if as_json:
        print_json({"written": [str(file) for file in written], "verdict": what.report.verdict.status}, "report")
    elif not quiet:
        echo(f"wrote {_files_text(written)}", err=True)


def _path(output: str | None, form: str | None, name: str) -> Path:
    """A path that ends with a slash is a folder, even if it does not exist yet."""
    if output is None:
        return Path(f"report-{name}.{form or 'html'}")
    path = Path(output).expanduser()
    if output.endswith("/"):
        path.mkdir(parents=True, exist_ok=True)
    return path if form is None or path.suffix == f".{form}" else path.with_name(f"{path.name}.{form}")


def _files_text(written: list[Path]) -> str:
    return str(written[0]) if len(written) == 1 else f"{written[0]} and {len(written) - 1} more files"


def _stream(what: Any, form: str | None) -> None:
    """Writes the report to stdout; binary formats and HTML are not written to a terminal."""
    form = form or "html"
    if sys.stdout.isatty() and form in ("png", "xlsx", "html"):
        raise click.UsageError(f"{form} is not printed to a terminal: use -o FILE, or redirect stdout")
    with TemporaryDirectory() as folder:
        written = write_report(what, Path(folder) / f"report.{form}")
        sys.stdout.buffer.write(written[0].read_bytes())
        sys.stdout.buffer.flush()


ALL_INTERFACES = ("0.0.0.0", "::")


def dashboard(host: str, port: int, require_token: bool, write: bool, opens: bool, store: str | None) -> int:
    kept_in = store_of(store)
    given = os.environ.get("INFEROMETER_TOKEN") or None
    token = given or new_token() if require_token or not is_loopback(host) else None

    def ready(address: str) -> None:
        shown = f"{address}?token={token}" if token and not given else address
        print_message("note", f"{kept_in}, {'pages can change it' if write else 'read-only'}; Ctrl-C stops it")
        if host in ALL_INTERFACES:
            print_message(
                "note",
                f"from other machines use this machine's name, for example {socket.gethostname()}, and the same port",
            )
        if token and given:
            print_message("note", "log in with the token of $INFEROMETER_TOKEN")
        echo(shown)
        if opens:
            click.launch(shown)

    serve_dashboard(kept_in, host=host, port=port, token=token, write=write, ready=ready)
    _exit_at_once()
    return 0


def _exit_at_once() -> None:
    """Exits at once if a thread still computes an answer: it cannot be stopped, and Python would wait for it."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def site(output: str, conditions: tuple[str, ...], charts: int, as_json: bool, quiet: bool, store: str | None) -> None:
    built = write_site(Path(output).expanduser(), store_of(store), where=conditions, charts=charts)
    if as_json:
        print_json(built.document(), "site")
    elif not quiet:
        echo(f"{built.path}: {built.runs:,} runs; {len(built.written)} files written, {len(built.removed)} removed")
    if built.unreadable:
        some = ", ".join(built.unreadable[:3]) + (", ..." if len(built.unreadable) > 3 else "")
        many = "run" if len(built.unreadable) == 1 else "runs"
        print_message("warning", f"{len(built.unreadable)} {many} could not be read and are not shown: {some}")
