"""`About`: the header of a run, the same on every page, in reports and in messages: model, engine and accelerators,
workload and load in words, when, and of which commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from inferometer.record.run import Run
from inferometer.show.series_names import hardware_words, short_model


@dataclass(frozen=True)
class About:
    """Who a run is about: the header that every page, report and message has for it."""

    id: str
    name: str | None  # that a person gave its plan
    model: str
    engine: str  # with its version
    hardware: str
    workload: str
    load: str
    started: str
    commit: str | None

    @property
    def stack(self) -> str:
        return " · ".join(filter(None, (self.model, self.engine, self.hardware)))

    @property
    def traffic(self) -> str:
        return " · ".join(filter(None, (self.workload, self.load)))

    @property
    def when(self) -> str:
        """`2026-11-16 00:26 UTC`: of one machine it is the time there."""
        return self.started[:16].replace("T", " ") + (" UTC" if self.started.endswith("+00:00") else "")

    @property
    def title(self) -> str:
        """Of one line, the name first where there is one."""
        return " · ".join(filter(None, (self.name, self.stack, self.traffic))) or self.id


def about_of(run: Run) -> About:
    subject = run.subject
    return About(
        id=run.id,
        name=subject.name,
        model=short_model(subject.model),
        engine=subject.engine_text,
        hardware=hardware_words(run),
        workload=subject.workload,
        load=subject.load,
        started=run.started_at,
        commit=subject.commit[:12] if subject.commit else None,
    )


# -- links -----------------------------------------------------------------------------------------------------------

PAGES_URL = "INFEROMETER_PAGES_URL"  # of the dashboard or the site that messages lead to


def page_link(id_: str | None, environment: Mapping[str, str], page: str = "run") -> str | None:
    """The page of a run or an experiment, where somebody said under which address pages are."""
    base = environment.get(PAGES_URL, "").strip()
    if not id_ or not base.startswith(("http://", "https://")):
        return None
    return f"{base.rstrip('/')}/{page}.html?id={quote(id_)}"
