"""A fleet in virtual time: simulated engines on one clock behind one routing policy, driven by the same load loop as a
single simulator. Records contain the replica; the router's decisions and the replicas' activity are samples."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from inferometer.errors import PlanError
from inferometer.load.answer import new_record
from inferometer.load.clock import Clock, Done, Ended, Ticket, VirtualClock
from inferometer.measure.inputs import Facts
from inferometer.plan.model import Plan
from inferometer.plan.server import OWN, Router
from inferometer.record.columns import Records, known
from inferometer.record.record import Outcome, Record
from inferometer.record.run import Run
from inferometer.record.summary import Value
from inferometer.router.feed import Choice
from inferometer.router.journal import Journal, ReplicaCounts
from inferometer.router.policy import NoReplicaError, Policy, Query, Replica, policy_named
from inferometer.router.settings import check_policy
from inferometer.simulator.engine import Sequence as TokenSequence
from inferometer.simulator.engine import SimulatorEngine
from inferometer.simulator.settings import Instants, SimulatorSettings, settings_from
from inferometer.simulator.tokens import Tokens, tokens_of
from inferometer.simulator.virtual import VirtualTransport, finished_run, planned_faults, rehearse, without_address
from inferometer.vocabulary import NANOSECONDS
from inferometer.workload.session import NOWHERE, Prompt, Request

METRICS_EVERY_S = 0.05  # maximum age of a router's information on queues and caches; llm-d's refresh interval
SESSION_HEADERS = ("x-session-id", "x-prefix-id", "x-user-id")  # headers that identify requests of one conversation
SAMPLE_S = 1.0


@dataclass(frozen=True)
class FleetSettings:
    """Engines, one for each replica, and the policy in front of them."""

    engines: Sequence[SimulatorSettings]
    policy: str = "round_robin"
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    capacity: int | None = None  # maximum requests in flight per replica

    @classmethod
    def alike(cls, engine: SimulatorSettings, replicas: int, policy: str, **more: Any) -> "FleetSettings":
        return cls([engine] * replicas, policy, **more)


class VirtualReplica:
    """One simulated engine, and the counters of a router for it."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        settings: SimulatorSettings,
        faults: Mapping[str, str] | None,
        time_limit_s: float | None,
    ) -> None:
        self.name = name
        self.counts = ReplicaCounts()
        self.in_flight = 0
        self.tokens_in_flight = 0
        self._frontend_ns = settings.frontend_ns
        self.transport = VirtualTransport(clock, settings, faults, time_limit_s, name, self._finished)

    @property
    def engine(self) -> SimulatorEngine:
        return self.transport.loop.engine

    def cached_tokens(self, tokens: Tokens) -> int:
        """How many of the tokens, from the first on, are in its cache now."""
        if not self.engine.prefix_caching:
            return 0
        return self.engine.pool.match(tokens)[0] * self.engine.block_size

    def _finished(self, sequence: TokenSequence, made: Instants) -> None:
        self.counts.add(sequence, made, self._frontend_ns)


@dataclass(eq=False, slots=True)
class _Held:
    """A request at the router, and the function that ends it once it is at a replica."""

    request: Request
    ticket: Ticket
    ended: Ended
    done: Done
    sent_at: int
    end: Callable[[Outcome], None] | None = None


class FleetTransport:
    """Carries every request to the replica that the policy chooses. `journal` records what happens; without one, only
    records are kept."""

    def __init__(
        self,
        clock: Clock,
        settings: FleetSettings,
        journal: Journal | None = None,
        faults: Mapping[str, str] | None = None,
        time_limit_s: float | None = None,
    ) -> None:
        self.clock = clock
        self.policy: Policy = policy_named(settings.policy, settings.settings, settings.seed)
        self.replicas = {
            name: VirtualReplica(name, clock, engine, faults, time_limit_s)
            for name, engine in ((f"replica-{number}", engine) for number, engine in enumerate(settings.engines, 1))
        }
        self._journal = journal
        self._capacity = settings.capacity
        self._waiting: deque[_Held] = deque()  # in the router's queue, in order of arrival
        self._queries = 0
        self._reported: dict[str, tuple[int, float]] = {}  # waiting requests and cache use, as last read
        self._reported_at: int | None = None
        for name in self.replicas:
            self.policy.added(name)
        if journal is not None:
            self._sample()
        if self.policy.eviction_interval_s is not None:
            self._evict()

    def prepare(self, _request: Request, _traffic: str, _session: int) -> int:
        """Does nothing: time stands still while requests are created."""
        return 0

    def send(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        """To a replica or, while all of them are full, into the router's queue."""
        held = _Held(request, ticket, ended, done, self.clock.now())
        if self._waiting or not self._try(held):
            self._waiting.append(held)
        return lambda outcome: self._give_up(held, outcome)

    def _try(self, held: "_Held") -> bool:
        def done(record: Record, answer: str) -> None:
            record.sent_at = held.sent_at  # by the client; waiting in the router is part of its latency
            held.done(record, answer)

        try:
            held.end = self._route(held.request, held.ticket, held.ended, done)
        except NoReplicaError:
            return False
        return True

    def _give_up(self, held: "_Held", outcome: Outcome) -> None:
        if held.end is not None:
            held.end(outcome)
        elif held in self._waiting:
            self._waiting.remove(held)
            record = new_record(held.ticket)
            record.sent_at, record.outcome, record.ended_at = held.sent_at, outcome, self.clock.now()
            held.ended(record.ended_at)
            held.done(record, "")

    def _route(self, request: Request, ticket: Ticket, ended: Ended, done: Done) -> Callable[[Outcome], None]:
        query, cached = self._query(request)
        began = time.perf_counter()
        decision = self.policy.choose(query, self._known(), self._now_s)
        chosen = time.perf_counter()
        replica = self.replicas[decision.replica]
        self.policy.sent(query, replica.name, self._now_s)
        remembered = time.perf_counter()
        replica.in_flight += 1
        replica.tokens_in_flight += query.tokens or 0
        if self._journal is not None:
            choice = Choice(
                at=self.clock.now(),
                session=ticket.session,
                replica=replica.name,
                kind=decision.kind,
                match_rate=decision.match_rate,
                cached_tokens=cached[replica.name],
                best_cached_tokens=max(cached.values()),
                searched=max(len(decision.candidates), 1),
                took_s=chosen - began,
                insert_s=remembered - chosen,
            )
            self._journal.choices.append(choice)

        def over(at: int) -> None:
            replica.in_flight -= 1
            replica.tokens_in_flight -= query.tokens or 0
            self.policy.finished(query, replica.name, self._now_s)
            ended(at)
            while self._waiting and self._try(self._waiting[0]):
                self._waiting.popleft()

        return replica.transport.send(request, ticket, over, done)

    @property
    def _now_s(self) -> float:
        return self.clock.now() / NANOSECONDS

    def _query(self, request: Request) -> tuple[Query, dict[str, int]]:
        """The information for the policy, and how much of the prompt each cache really holds."""
        self._queries += 1
        tokens = tokens_of(request.prompt)
        cacheable = tokens[:-1]  # the last one is always computed: it yields the first token of the answer
        cached = {name: replica.cached_tokens(cacheable) for name, replica in self.replicas.items()}
        headers = {name.lower(): value for name, value in request.headers.items()}
        query = Query(
            text=_text(request.prompt) if self.policy.needs_text else "",
            session=next((headers[name] for name in SESSION_HEADERS if name in headers), None),
            tokens=len(tokens),
            cached=cached,
            id=self._queries,
        )
        return query, cached

    def _known(self) -> list[Replica]:
        """The replicas as a router knows them: its own counts immediately, their reports with some delay."""
        if self.policy.needs_metrics:
            self._read_metrics()
        return [
            Replica(
                name,
                replica.in_flight,
                replica.tokens_in_flight,
                capacity=self._capacity,
                waiting=self._reported[name][0] if name in self._reported else None,
                kv_usage=self._reported[name][1] if name in self._reported else None,
            )
            for name, replica in self.replicas.items()
        ]

    def _read_metrics(self) -> None:
        now = self.clock.now()
        if self._reported_at is None or now - self._reported_at >= METRICS_EVERY_S * NANOSECONDS:
            self._reported_at = now
            self._reported = {
                name: (len(replica.engine.waiting), replica.engine.pool.usage)
                for name, replica in self.replicas.items()
            }

    def _sample(self) -> None:
        assert self._journal is not None
        self._journal.sample(self.clock.now(), self.replicas, self.policy.state())
        self.clock.call_at(self.clock.now() + round(SAMPLE_S * NANOSECONDS), self._sample)

    def end(self) -> None:
        """The load is over: take a last sample of everything."""
        if self._journal is not None:
            self._journal.sample(self.clock.now(), self.replicas, self.policy.state())

    def _evict(self) -> None:
        assert self.policy.eviction_interval_s is not None
        began = time.perf_counter()
        evicted = self.policy.evict(self._now_s)
        if self._journal is not None and evicted:
            self._journal.evicted(self.clock.now(), evicted, time.perf_counter() - began)
        self.clock.call_at(self.clock.now() + round(self.policy.eviction_interval_s * NANOSECONDS), self._evict)


def _text(prompt: Prompt) -> str:
    """The part of a prompt that a router sees: its text, or the concatenated contents of its messages."""
    if isinstance(prompt, str):
        return prompt
    return "".join(_content(entry) for entry in prompt)


def _content(entry: Any) -> str:
    return str(entry.get("content") or "") if isinstance(entry, dict) else f"{entry} "


# -- plans -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FleetRehearsal:
    """The result of a plan on a fleet: every record, and the activity of the router and the replicas."""

    records: Records
    facts: Facts
    journal: Journal
    replicas: Mapping[str, ReplicaCounts]


def fleet_settings(plan: Plan) -> FleetSettings:
    """The fleet that a plan describes; in virtual time its replicas are simulators."""
    server = plan.server
    if server is None or server.type != "fleet" or server.replicas is None:
        raise PlanError("server.type must be fleet", "server: {type: fleet, replicas: 4, router: prefix_aware}")
    of, router = server.of, server.router or Router()
    if of is not None and of.type != "simulator":
        raise PlanError(
            f"server.of.type must be simulator in virtual time, got {of.type}", "inferometer run starts real servers"
        )
    if router.type != OWN:
        raise PlanError(
            f"server.router.type must be {OWN} in virtual time, got {router.type}",
            "inferometer run starts other routers",
        )
    engine = settings_from(of.args if of else {}, "server.of.args")
    more = {"settings": router.settings, "seed": router.seed, "capacity": router.max_in_flight}
    check_policy(router)
    return FleetSettings.alike(engine, server.replicas, router.fleet_policy, **more)


def rehearse_fleet(
    plan: Plan, note: Callable[[str], None] = NOWHERE.note, settings: FleetSettings | None = None
) -> FleetRehearsal:
    """Every record of the plan as the fleet would answer it. The tape and the policy's choices depend only on the
    plan's seed, so the same plan gives the same records."""
    fleet = settings or fleet_settings(plan)
    journal = Journal()
    made: list[FleetTransport] = []

    def transport_of(clock: VirtualClock) -> FleetTransport:
        seeded = replace(fleet, seed=fleet.seed + plan.seed)
        made.append(FleetTransport(clock, seeded, journal, planned_faults(plan), plan.target.timeout.request))
        return made[0]

    nonce = f"seed {plan.seed}"
    records, facts = rehearse(plan, fleet.engines[0], note, transport_of=transport_of, nonce=nonce)
    made[0].end()
    return FleetRehearsal(records, facts, journal, {name: it.counts for name, it in made[0].replicas.items()})


def simulated_fleet_run(plan: Plan, note: Callable[[str], None] = NOWHERE.note) -> Run:
    """A predicted run on a fleet, in virtual time: measured and judged like any other, not stored."""
    started, plan = datetime.now(UTC), without_address(plan)
    done = rehearse_fleet(plan, note)
    engine = fleet_settings(plan).engines[0]
    run = finished_run(plan, done.records, done.facts, engine, started, done.journal.samples())
    return replace(run, summary=structs.replace(run.summary, values={**run.summary.values, **fleet_values(plan, done)}))


def fleet_values(plan: Plan, done: FleetRehearsal) -> dict[str, Value]:
    """The results of the routing, over the requests after the warm-up."""
    records, totals = done.records, done.journal.totals(plan.warmup.requests)
    kept = (records.session >= plan.warmup.requests) & known(records.sent_at) & known(records.ended_at)
    if not kept.any() or not totals.requests:
        return {}
    answered = kept & known(records.cached_tokens) & known(records.input_tokens)
    tokens = int(records.input_tokens[answered].sum())
    cached = int(records.cached_tokens[answered].sum())
    run_s = float(records.ended_at[kept].max() - records.sent_at[kept].min()) / NANOSECONDS
    busiest = max(totals.requests.values()) * len(done.replicas) / sum(totals.requests.values())
    return {
        "run_time": Value(value=run_s, unit="s", direction="lower", title="Run time, first sent to last token"),
        "fleet_hit_rate": Value(
            value=cached / tokens if tokens else None, unit="share", direction="higher", title="Prompt tokens cached"
        ),
        "fleet_match_rate": Value(
            value=totals.match_rate, unit="share", direction=None, title="Prefix match rate, as the policy saw it"
        ),
        "fleet_regret": Value(
            value=totals.regret_tokens, unit="tokens", direction="lower", title="Tokens cached elsewhere but not here"
        ),
        "fleet_busiest": Value(
            value=busiest, unit="", direction="lower", title="Requests of the busiest replica, in means"
        ),
    }
