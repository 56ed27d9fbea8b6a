"""The conductor of the static site: a store as a folder of pages."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.dashboard import answers_of
from inferometer.show.site.building import Built, build_site
from inferometer.store.opening import Place

CHARTS = 100  # runs whose charts are part of it


def site(folder: Path | str, store: Place = None, *, where: Sequence[str] = (), charts: int = CHARTS) -> Built:
    """Write the site of a store, or what changed of it since the last time."""
    return build_site(answers_of(store), Path(folder), where=where, charts=charts)
