"""Keeps a run that is made in one piece: an offline batch, a startup, an imported result, somebody's own benchmark."""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from inferometer.errors import StoreError
from inferometer.record.columns import Records
from inferometer.record.files import replacing
from inferometer.record.parquet import write_parquet, write_samples
from inferometer.record.run import Kind, Run, State
from inferometer.record.sample import Samples
from inferometer.store.folder import RECORDS, SAMPLES, new_run
from inferometer.store.index import Index


def keep(
    store: Path,
    *,
    kind: Kind,
    plan: Mapping[str, Any],
    environment: Mapping[str, Any],
    summary: Mapping[str, Any],
    verdict: Mapping[str, Any],
    started: datetime | None = None,
    state: State = "complete",
    source: str | None = None,
    records: Records | None = None,
    samples: Samples | None = None,
    files: Mapping[str, bytes] | None = None,
) -> Run:
    """Write the folder of a run whose numbers are known already, and enter it in the index. `files` are kept beside
    it as they are: a log, the result of another tool."""
    folder = new_run(store, started, kind, source)
    folder.write_plan(plan)
    folder.write_environment(environment)
    if records is not None:
        write_parquet(records, folder.path / RECORDS)
    if samples is not None:
        write_samples(samples, folder.path / SAMPLES)
    for name, content in (files or {}).items():
        with replacing(folder.path / name) as draft:
            draft.write_bytes(content)
    folder.write_summary(summary)
    folder.write_verdict(verdict)
    folder.write_state(state)
    kept = folder.load()
    with suppress(StoreError):  # the index follows the folders by itself
        Index(store).add(kept)
    return kept
