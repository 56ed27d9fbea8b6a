"""The files that a plan asks to be written when its run ends: in any format that runs can be exported to."""

from pathlib import Path

from inferometer.errors import StoreError
from inferometer.exchange.exporting.registry import write
from inferometer.plan.model import Output
from inferometer.record.run import Run


def write_outputs(run: Run, outputs: list[Output]) -> list[Path]:
    """Write every output; those that cannot be written are named together, after the others were."""
    written, failures = [], []
    for output in outputs:
        try:
            files, _notes = write(output.format, [run], Path(output.path).expanduser())
            written += files
        except StoreError as error:
            failures.append(error.message)
    if failures:
        raise StoreError("\n".join(failures), f"the run itself is kept: {run.folder}")
    return written
