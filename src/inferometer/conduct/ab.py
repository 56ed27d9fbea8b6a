"""Conducts an A/B comparison: two targets are measured alternately, block by block on the same tapes, so that drift
affects both. Each block is a run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msgspec import structs

from inferometer.conduct.run import Notes, run
from inferometer.errors import LostError, PlanError, TargetError
from inferometer.judge.compare import Comparison, everything, headline, named
from inferometer.judge.effect import ALPHA, MARGIN, Change, Sides, changes
from inferometer.judge.identity import axes_text, identity, objections
from inferometer.judge.limits import losses
from inferometer.measure.values import Quantity, common_basis, quantities
from inferometer.measure.verdict import CLIENT_CODES
from inferometer.plan.load import Stop
from inferometer.plan.model import Plan
from inferometer.plan.text import to_mapping
from inferometer.record.run import Run
from inferometer.store.experiments import (
    AbDefinition,
    AbResult,
    DoneBlock,
    ExperimentFolder,
    LeftOutPair,
    Pairs,
    new_experiment,
)
from inferometer.store.shapes import ExperimentCase
from inferometer.store.store import Place, open_store
from inferometer.target.server import StartedServer, running
from inferometer.workload.session import new_nonce

Side = Literal["a", "b"]
BLOCKS, BLOCK_S = 10, 20.0
FEWEST_PAIRS = 3  # with 2 the interval is 12.7 standard errors to each side, which never decides anything

Numbers = Sequence[Mapping[str, Quantity]]  # for each run of a side
MeasureBlock = Callable[[Plan, Side, str], Run]  # measures a block: its plan, its side, and the nonce of its tape


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one side."""

    pair: int  # number of the pair, from 1
    side: Side
    run: Run


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of an A/B comparison, its blocks in the order they were run, and the experiment that stores them."""

    comparison: Comparison
    blocks: list[Block]
    left_out: dict[int, str]  # pairs that are not compared, and why
    planned: int  # planned number of pairs
    experiment: str | None

    @property
    def result(self) -> AbResult:
        """The result as it is stored and printed."""
        return AbResult(
            **structs.asdict(self.comparison),
            id=self.experiment,
            pairs=Pairs(self.planned, len(self.comparison.before)),
            left_out=tuple(LeftOutPair(pair, why) for pair, why in self.left_out.items()),
            blocks=tuple(DoneBlock(block.pair, block.side, block.run.id) for block in self.blocks),
        )


@dataclass(frozen=True, slots=True)
class Design:
    """Number and length of the blocks, and the measures to compare."""

    blocks: int = BLOCKS  # per side
    block_s: float = BLOCK_S
    measures: Sequence[str] = ()
    every: bool = False
    alpha: float = ALPHA
    margin: float = MARGIN


def ab(
    a: Plan,
    b: Plan,
    design: Design | None = None,
    *,
    store: Place = None,
    notes: Notes | None = None,
    on_block: Callable[[Block], None] | None = None,
) -> Compared:
    """Measures both plans alternately. Servers that they start run side by side from the first block to the last."""
    chosen = design or Design()
    check(a, b, chosen)
    kept_in = open_store(store)
    kept_in.check_writable()
    kept = new_experiment(kept_in.home, "ab", a.name, _definition(a, b, chosen))
    with ExitStack() as stack:
        servers = _servers(stack, {"a": a, "b": b}, kept.path, notes)

        def measure(plan: Plan, side: Side, nonce: str) -> Run:
            return run(plan, store=kept_in, notes=notes, nonce=nonce, server=servers[side])

        def done(block: Block) -> None:
            name = f"{block.pair} {block.side}"
            kept_in.set_case(block.run.id, kept.id, name)
            parameters = {"pair": block.pair, "side": block.side}
            kept.add(ExperimentCase(name=name, parameters=parameters, run=block.run.id))
            if on_block is not None:
                on_block(block)

        blocks: list[Block] = []
        try:
            blocks.extend(in_turns(a, b, chosen, measure, done))
        except TargetError as error:
            if blocks:  # the target was reachable before
                raise LostError(error.message, _kept_hint(blocks)) from error
            raise
    return _finished(blocks, chosen, kept)


def _finished(blocks: list[Block], design: Design, kept: ExperimentFolder) -> Compared:
    result = replace(judged(blocks, design), experiment=kept.id)
    kept.finish(result.result)
    return result


def check(a: Plan, b: Plan, design: Design) -> None:
    """Report what cannot be compared before anything is started."""
    mistakes = []
    if design.blocks < FEWEST_PAIRS:
        mistakes.append(f"--blocks must be at least {FEWEST_PAIRS}: fewer pairs show nothing, got {design.blocks}")
    differing = [name for name in ("workload", "load", "sampling", "traffic", "warmup") if _differ(a, b, name)]
    mistakes += [f"A and B must have the same workload and load, but {name} differs" for name in differing]
    if mistakes:
        raise PlanError(mistakes, "use one PLAN for both sides: inferometer ab PLAN --a ... --b ...")
    if any(traffic.load.type in ("stages", "replay", "ramp") for traffic in a.classes):
        raise PlanError("a block needs a steady load: a rate or a concurrency, not stages, a ramp or a replay")


def _differ(a: Plan, b: Plan, name: str) -> bool:
    return bool(getattr(a, name) != getattr(b, name))


def order(blocks: int) -> Iterator[tuple[int, Side]]:
    """ABBA, ABBA, ...: pair by pair, alternating the first side, so that a linear drift affects both equally."""
    for pair in range(1, blocks + 1):
        sides: tuple[Side, Side] = ("a", "b") if pair % 2 else ("b", "a")
        yield from ((pair, side) for side in sides)


def in_turns(
    a: Plan, b: Plan, design: Design, measure: MeasureBlock, done: Callable[[Block], None] = lambda _block: None
) -> Iterator[Block]:
    """One block after the other, until an interruption; the blocks finished by then are compared."""
    same_place = bool(a.target.url) and a.target.url == b.target.url
    nonces = {pair: new_nonce() for pair in range(1, design.blocks + 1)}
    for pair, side in order(design.blocks):
        plan = block_plan(a if side == "a" else b, design.block_s, pair)
        nonce = f"{nonces[pair]}{side}" if same_place else nonces[pair]  # its cache must not contain the tape yet
        block = Block(pair, side, measure(plan, side, nonce))
        done(block)
        yield block
        if block.run.state == "interrupted" or losses(block.run):
            return


def block_plan(plan: Plan, block_s: float, pair: int) -> Plan:
    """Each pair has its own tape: other requests at other times, the same for both sides."""
    stop = Stop(duration=block_s, drain=plan.stop.drain, errors=plan.stop.errors)
    traffic = [traffic_class.model_copy(update={"stop": stop}) for traffic_class in plan.traffic]
    return plan.model_copy(update={"stop": stop, "traffic": traffic, "seed": plan.seed + pair - 1, "outputs": []})


def judged(blocks: Sequence[Block], design: Design | None = None) -> Compared:
    """Paired differences of each measure over the pairs, with Student's t; Holm's correction over the measures.
    Pure."""
    chosen = design or Design()
    left_out = _left_out(blocks, chosen.blocks)
    pairs = [pair for pair in _pairs(blocks) if pair[0].pair not in left_out]
    before, after = [one.run for one, _ in pairs], [other.run for _, other in pairs]
    if len(pairs) < 2:
        why = "; ".join(f"pair {pair}: {text}" for pair, text in left_out.items()) or "interrupted"
        kind = LostError if any(losses(item.run) for item in blocks) else TargetError
        raise kind(f"only {len(pairs)} of {chosen.blocks} pairs can be compared: {why}", _kept_hint(blocks))
    basis = common_basis(run.summary for run in (*before, *after))
    numbers = [[quantities(run.summary, basis) for run in side] for side in (before, after)]
    open_loop = before[0].summary.loop in ("open", "mixed")
    comparison = Comparison(
        before=tuple(item.id for item in before),
        after=tuple(item.id for item in after),
        changes=tuple(paired_changes(numbers[0], numbers[1], chosen, open_loop)),
        objections=tuple(objections(before, after)),
        design="paired tapes",
        records=all(item.read_records is not None for item in (*before, *after)),
        history=0,
        axes=axes_text(identity(before[0]), identity(after[0])),
        alpha=chosen.alpha,
    )
    return Compared(comparison, list(blocks), left_out, chosen.blocks, None)


def _kept_hint(blocks: Sequence[Block]) -> str:
    return f"the blocks are stored: inferometer show {blocks[0].run.id}" if blocks else "no block was completed"


def _pairs(blocks: Sequence[Block]) -> list[tuple[Block, Block]]:
    """Each A with its B, in the order of the pairs."""
    by_side = {(block.pair, block.side): block for block in blocks}
    numbers = sorted({block.pair for block in blocks})
    return [(by_side[n, "a"], by_side[n, "b"]) for n in numbers if (n, "a") in by_side and (n, "b") in by_side]


def _left_out(blocks: Sequence[Block], planned: int) -> dict[int, str]:
    """Pairs in which a block was cut short, has no numbers, or suffered from our own lateness. What the targets did,
    including failures, is compared. If leaving out late blocks would leave too few pairs, all are compared and the
    result is called invalid."""
    cut: dict[int, str] = {}
    late: dict[int, str] = {}
    for block in blocks:
        wrong = [
            reason.sentence for reason in block.run.doubts if reason.code in CLIENT_CODES and reason.status == "invalid"
        ]
        if block.run.state in ("interrupted", "partial"):
            cut[block.pair] = f"{block.side} was {block.run.state}"
        elif lost := losses(block.run):
            cut[block.pair] = f"{block.side}: {lost[0]}"
        elif not block.run.summary.measures:
            cut[block.pair] = f"{block.side} answered nothing"
        elif wrong:
            late.setdefault(block.pair, f"{block.side}: {wrong[0]}")
    left = {pair for pair in range(1, planned + 1) if pair not in cut and pair not in late}
    return dict(sorted((late | cut).items())) if len(left) >= FEWEST_PAIRS else cut


def paired_changes(before: Numbers, after: Numbers, design: Design, open_loop: bool) -> list[Change]:
    """The change of each requested measure, from the numbers of the blocks, pair by pair."""
    known = _known_to_all(before), _known_to_all(after)
    if design.measures:
        keys = named(design.measures, *known)
    else:
        keys = everything(*known) if design.every else headline(*known, open_loop)
    return changes([_sides(key, before, after) for key in keys], design.alpha, design.margin)


def _known_to_all(numbers: Numbers) -> dict[str, Quantity]:
    return {key: quantity for key, quantity in numbers[0].items() if all(key in other for other in numbers[1:])}


def _sides(key: str, before: Numbers, after: Numbers) -> Sides:
    first = before[0][key]
    title = first.title if first.statistic is None else f"{first.title} {first.statistic}"
    values = [tuple(numbers[key].value for numbers in side) for side in (before, after)]
    return Sides(key, title, first.unit, first.direction, values[0], values[1], pairs=True)


# -- servers -----------------------------------------------------------------------------------------------------


def _servers(
    stack: ExitStack, plans: dict[Side, Plan], folder: Path, notes: Notes | None
) -> dict[Side, StartedServer | None]:
    """Started one after the other, running side by side: restarting them for each block would take longer than the
    block, and measure a cold server."""
    servers: dict[Side, StartedServer | None] = {"a": None, "b": None}
    notify = notes or (lambda _text: None)
    for side, plan in plans.items():
        if plan.server is None:
            continue
        try:
            servers[side] = stack.enter_context(
                running(
                    plan.server,
                    folder,
                    target=plan.target,
                    notify=notify,
                    holder=folder.name,
                    log=folder / f"{side}.log",
                    shared=True,
                )
            )
        except TargetError as error:
            if side == "a" or servers["a"] is None:
                raise
            raise TargetError(f"starting b while a runs: {error.message}", _both_servers_hint(error)) from None
    return servers


def _both_servers_hint(error: TargetError) -> str:
    prefix = f"{error.hint}; " if error.hint else ""
    return (
        f"{prefix}both servers run at the same time: give each its own GPUs "
        "(--set-b server.env.CUDA_VISIBLE_DEVICES=1); if only one fits, measure each several times: "
        "inferometer compare a1,a2,a3 b1,b2,b3"
    )


def _definition(a: Plan, b: Plan, design: Design) -> AbDefinition:
    return AbDefinition(
        blocks=design.blocks,
        block_s=design.block_s,
        measures=tuple(design.measures),
        a=to_mapping(a),
        b=to_mapping(b),
    )
