"""Opens the store that a command line names, and completes run ids."""

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from inferometer.cli.errors import print_message
from inferometer.cli.options import RECORDS
from inferometer.store.store import Store, open_store


def runs_of(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    store = open_store(context.params.get("store"), context.meta.get(RECORDS))
    runs = sorted((path.name for path in (store.home / "runs").glob(f"{incomplete}*")), reverse=True)
    return [CompletionItem(name) for name in runs if not name.startswith(".")]


def store_of(chosen: str | Path | None) -> Store:
    """The chosen store, or the default one; its warnings are printed once."""
    context = click.get_current_context(silent=True)
    store = open_store(chosen, context.meta.get(RECORDS) if context else None)
    while store.warnings:
        print_message("warning", store.warnings.pop())
    return store
