"""`inferometer worker`: the command that the pods of `inferometer k8s run` execute."""

from pathlib import Path

import click

from inferometer.cli.errors import echo, print_message


@click.command()
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), metavar="FILE", help="Plan to measure.")
@click.option(
    "--results",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for the results; with several pods, _1, _2, ... is appended.",
)
@click.option("--pods", type=click.IntRange(min=1), default=1, metavar="N", help="Number of pods with this plan.")
@click.option("--harness", metavar="NAME", default="inferometer", help="Load generator. [default: inferometer]")
@click.option("--watch-stack", "stack", metavar="NAMESPACE", help="Folder for the cluster's data about the stack.")
@click.option("--serve", is_flag=True, help="Wait for the driver of inferometer run --on kubernetes.")
@click.option("--print", "print_from", metavar="FILE:BYTE", help="Print the results from there on, to be collected.")
def worker(
    plan_file: Path | None,
    results: Path | None,
    pods: int,
    harness: str,
    stack: str | None,
    serve: bool,
    print_from: str | None,
) -> int:
    """Measure a plan in a pod and store the run in a folder of its volume.

    Exit code 0 if a run was kept, whatever its numbers are. The number of the pod is read from JOB_COMPLETION_INDEX,
    which an Indexed Job sets, or from INFEROMETER_INDEX.
    """
    if serve:
        from inferometer.scale.kubernetes.shard_server import serve_shard

        return serve_shard()
    if results is None:
        raise click.UsageError("--results FOLDER is missing")
    if print_from is not None:
        return _print(results, print_from)
    if plan_file is None:
        raise click.UsageError("--plan FILE is missing")
    from inferometer.cli.printing import exit_code, print_run
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
        exit_code(made, shown=True)  # prints what is wrong; the pod has done its work whatever the numbers are
    return 0


def _print(results: Path, print_from: str) -> int:
    from inferometer.conduct.worker import print_results
    from inferometer.scale.kubernetes.carrying import Cursor

    file, _, at = print_from.partition(":")
    if not file.isdigit() or not (at or "0").isdigit():
        raise click.UsageError(f"--print must be FILE:BYTE such as 0:0, got {print_from}")
    if not print_results(results, Cursor(int(file), int(at or 0))):
        echo(f"{results}: no results", err=True)
    return 0
