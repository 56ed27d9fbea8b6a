"""The conductor of simulations: a plan in virtual time, against one simulator or a fleet of them; kept as a run where
that is wanted."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from msgspec import structs

from inferometer.exchange.exporting.registry import write_outputs
from inferometer.plan.model import Plan
from inferometer.plan.writing import to_mapping
from inferometer.record.run import Run
from inferometer.record.summary import Summary, Value
from inferometer.store.save import keep
from inferometer.store.store import Place
from inferometer.vocabulary import attribute_at

_FLEET = "inferometer.router.virtual:simulated_fleet_run"
_ALONE = "inferometer.simulator.virtual:simulated_run"
Notes = Callable[[str], None]


def simulate(plan: Plan, note: Notes = lambda _text: None) -> Run:
    """What the plan would come to, without a server and without a network."""
    is_fleet = plan.server is not None and plan.server.type == "fleet"
    made: Run = attribute_at(_FLEET if is_fleet else _ALONE)(plan, note)
    return made


def simulate_kept(
    plan: Plan,
    store: Place = None,
    note: Notes = lambda _text: None,
    derive: Callable[[Summary], Mapping[str, Value]] | None = None,
) -> Run:
    """The same, kept in the store like a run that was sent; its environment says that time was virtual."""
    started = datetime.now(UTC)
    made = simulate(plan, note)
    assert made.verdict is not None
    derived = {} if derive is None else derive(made.summary)
    kept = keep(
        store,
        kind="serving",
        plan=to_mapping(plan),
        environment=made.environment,
        summary=structs.replace(made.summary, values={**made.summary.values, **derived}),
        verdict=made.verdict,
        started=started,
        state=made.state,
        records=made.records,
        samples=made.samples,
    )
    write_outputs(kept, plan.outputs)
    return kept
