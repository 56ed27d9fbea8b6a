"""`inferometer import` and `inferometer export`: results of other tools as runs, and runs in other tools' formats."""

from pathlib import Path

import click

from inferometer.cli.options import json_option, quiet_option, store_option, work_in

IMPORT_EXAMPLES = """\b
Examples:
  inferometer import vllm_bench_serve.json
      a result of `vllm bench serve`; includes its requests if it was made with --save-detailed
  inferometer import results/
      all results in a folder, of any supported tool
  inferometer import fake_db/e2e_benchmark_data.json --tag ci
      every point of a history, each as a run with its own time
  inferometer import report.yaml --dry-run
      show the format and the content; store nothing
  inferometer import --formats
      list the supported formats
"""


@click.command("import", epilog=IMPORT_EXAMPLES)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="FILE...")
@click.option("--format", "name", metavar="FORMAT", help="Format of the files. [default: detected from the content]")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Tag the runs. Repeatable.")
@click.option("--again", is_flag=True, help="Import files again that were already imported.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; store nothing.")
@click.option("--explain", is_flag=True, help="List every field of the files: read, kept as metadata, or ignored.")
@click.option("--formats", "list_formats", is_flag=True, help="List the supported formats.")
@json_option
@quiet_option
@store_option
@work_in("inferometer.cli.work.importing:import_")
def import_() -> None:
    """Import results of other tools as runs, to list, show, compare and chart them like any other run.

    FILE is a result, a folder with results, or a pattern such as 'results/*.json'. The format is detected from the
    content.
    """


EXPORT_EXAMPLES = """\b
Examples:
  inferometer export latest --as vllm -o result.json
      JSON as vllm bench serve writes it, with vLLM's definitions
  inferometer export latest --as vllm --detailed -o -
      include every request, write to stdout
  inferometer export latest --as github-action-benchmark -o bench/
      bigger.json, smaller.json and observe.json
  inferometer export latest latest~1 --as openmetrics -o runs.om
      several runs in one file
  inferometer export --list
      list the formats
"""


@click.command(epilog=EXPORT_EXAMPLES)
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option("--as", "name", metavar="FORMAT", help="Output format; --list shows all formats.")
@click.option("-o", "--output", metavar="PATH", help="Output file, or a folder for several files; - means stdout.")
@click.option("--detailed", is_flag=True, help="Include every request, if the format supports it (vllm).")
@click.option("--list", "list_formats", is_flag=True, help="List the formats, then exit.")
@quiet_option
@store_option
@work_in("inferometer.cli.work.exporting:export")
def export() -> None:
    """Write RUNs in the format of another tool.

    RUN is an id or its prefix, a folder, `latest` or `latest~1`. Default: the latest run.
    """
