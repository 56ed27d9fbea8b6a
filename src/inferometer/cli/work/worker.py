"""Measures a plan in a pod, serves a driver, or prints the results of a pod."""

from pathlib import Path

import click

from inferometer.cli.errors import echo, print_message
from inferometer.scale.kubernetes.carrying import Cursor
from inferometer.scale.kubernetes.shard_server import serve_shard


def worker(
    plan_file: Path | None,
    results: Path | None,
    pods: int,
    harness: str,
    stack: str | None,
    serve: bool,
    print_from: str | None,
) -> int:
    if serve:
        return serve_shard()
    if results is None:
        raise click.UsageError("--results FOLDER is missing")
    if print_from is not None:
        return _print(results, print_from)
    if plan_file is None:
        raise click.UsageError("--plan FILE is missing")
    from inferometer.cli.work.printing import exit_code, print_run  # not needed in memory for --serve
    from inferometer.conduct.worker import work
    from inferometer.show.progress import ProgressLine

    line = ProgressLine()
    try:
        _, made = work(
            plan_file,
            results,
            pods,
            tool=harness,
            stack=stack,
            watch=line,
            notes=lambda text: print_message("note", text),
        )
    finally:
        line.clear()
    if made is not None:
        print_run(made, as_json=False, slowest=0)
        exit_code(made, shown=True)  # only prints problems: the pod has done its work, whatever the result
    return 0


def _print(results: Path, print_from: str) -> int:
    from inferometer.conduct.worker import print_results  # nor is this

    file, _, at = print_from.partition(":")
    if not file.isdigit() or not (at or "0").isdigit():
        raise click.UsageError(f"--print must be FILE:BYTE such as 0:0, got {print_from}")
    if not print_results(results, Cursor(int(file), int(at or 0))):
        echo(f"{results}: no results", err=True)
    return 0
