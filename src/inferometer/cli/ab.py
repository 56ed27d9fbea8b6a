"""`inferometer ab`: two targets, measured alternately."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import INVALID, LIMIT_FAILED, notes_once, print_message
from inferometer.cli.options import (
    json_option,
    plan_argument,
    plan_of,
    quiet_option,
    store_of,
    store_option,
    work_flags,
)
from inferometer.documents.document import Document, JsonValue
from inferometer.errors import PlanError
from inferometer.record.encoding import result_document
from inferometer.show.console import console
from inferometer.vocabulary import percent, seconds

if TYPE_CHECKING:
    from inferometer.conduct.ab import Compared, Design
    from inferometer.plan.model import Plan

EXAMPLES = """\b
Examples:
  inferometer ab --a http://gpu1:8000 --b http://gpu2:8000 --rate 4
      two running servers, 10 blocks of 20 s each
  inferometer ab chat --a http://localhost:8000 --b http://localhost:8001 --blocks 6 --block 60s
      both receive the workload of a built-in plan
  inferometer ab --a server:simulator --b 'server:{type: simulator, args: {speed: 1.3}}' --block 5s
      start two servers and run both at the same time
  inferometer ab plan.yaml --a stable.yaml --b canary.yaml --set-b server.env.CUDA_VISIBLE_DEVICES=1
      take target and server of each side from its own plan
  inferometer ab --a http://localhost:8000 --b http://localhost:8000 --concurrency 16
      A/A test: the differences that noise alone makes on this machine and server
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@click.option(
    "--a", "side_a", required=True, metavar="SIDE", help="Side A, the current version: a URL, a plan, or server:KIND."
)
@click.option(
    "--b",
    "side_b",
    required=True,
    metavar="SIDE",
    help="Side B, which is compared with A: a URL, a plan, or server:KIND.",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Number of blocks per side.",
)
@click.option("--block", default="20s", show_default=True, metavar="TIME", help="Duration of a block.")
@click.option("--model", metavar="NAME", help="Model to request from both. [default: the model each server serves]")
@click.option("--api", metavar="API", help="API of both targets. [default: completions]")
@click.option(
    "--set-a", "only_a", multiple=True, metavar="PATH=VALUE", help="Set a plan field for side A only. Repeatable."
)
@click.option(
    "--set-b", "only_b", multiple=True, metavar="PATH=VALUE", help="Set a plan field for side B only. Repeatable."
)
@click.option(
    "--measure", "measures", multiple=True, metavar="NAMES", help="Compare only these measures: ttft.p99,output_rate."
)
@click.option("--all", "every", is_flag=True, help="Compare every measure that has a better direction.")
@click.option("--margin", default="5%", show_default=True, metavar="SHARE", help="Call a smaller change the same.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 if B is worse in any measure.")
@work_flags
@json_option
@quiet_option
@store_option
def ab(
    plan_args: tuple[str, ...],
    side_a: str,
    side_b: str,
    block: str,
    blocks: int,
    only_a: tuple[str, ...],
    only_b: tuple[str, ...],
    measures: tuple[str, ...],
    every: bool,
    margin: str,
    fail_on_worse: bool,
    as_json: bool,
    quiet: bool,
    store: Path | None,
    **flags: Any,
) -> int:
    """Compare two targets block by block in the order A B B A A B B A ...; each block is stored as a run.

    Both blocks of a pair send the same requests at the same times, so the target is the only difference, and drift
    of the machine affects both sides. The confidence intervals come from the differences within pairs.
    """
    from inferometer.conduct.ab import ab as compare_in_turns
    from inferometer.show.comparison import print_block

    if flags.get("duration") or flags.get("requests"):
        raise click.UsageError("--duration and --requests do not apply: --block sets the duration of a block")
    plan_a = _side(plan_args, side_a, only_a, quiet, flags)
    plan_b = _side(plan_args, side_b, only_b, True, flags)
    result = compare_in_turns(
        plan_a,
        plan_b,
        _design(blocks, block, measures, every, margin),
        store=store_of(store),
        notes=None if quiet else notes_once(),
        on_block=None if quiet else (lambda finished: print_block(finished.pair, blocks, finished.side, finished.run)),
    )
    names = {"a": _named(side_a, only_a), "b": _named(side_b, only_b)}
    _print(result, names, blocks, as_json)
    return _exit_code(result, fail_on_worse, as_json)


def _design(blocks: int, block: str, measures: tuple[str, ...], every: bool, margin: str) -> "Design":
    from inferometer.conduct.ab import Design

    try:
        design = Design(blocks, seconds(block), measures, every, margin=percent(margin))
    except ValueError as error:
        raise PlanError(str(error)) from None
    if design.block_s <= 0:
        raise PlanError(f"--block must be longer than 0, got {block}")
    return design


def _print(result: "Compared", names: dict[str, str], blocks: int, as_json: bool) -> None:
    from inferometer.cli.printing import print_json
    from inferometer.show.comparison import print_ab

    if as_json:
        print_json(result_document("comparison", result.result))
    else:
        print_ab(result.comparison, names, result.left_out, blocks, str(result.experiment), console())


def _exit_code(result: "Compared", fail_on_worse: bool, as_json: bool) -> int:
    """The result for a script, printed on stderr."""
    from inferometer.judge.limits import exit_code, losses

    last = result.blocks[-1].run
    if last.state == "interrupted":
        print_message("warning", "interrupted; complete pairs are compared, and all blocks are stored")
        return exit_code(last)
    if lost := losses(last):
        print_message("error", f"{' '.join(lost)} Complete pairs are compared, and all blocks are stored")
        return INVALID
    if result.comparison.refused:
        reasons = [objection.text for objection in result.comparison.objections if objection.severity == "refuse"]
        print_message(
            "error", f"not valid as a measurement: {' '.join(reasons) if as_json else 'see the reason above'}"
        )
        return INVALID
    return LIMIT_FAILED if fail_on_worse and result.comparison.status == "worse" else 0


def _named(side: str, only: tuple[str, ...]) -> str:
    from inferometer.plan.secrets import redacted_text, redacted_url

    name = redacted_url(side) if side.startswith(("http://", "https://")) else side
    return redacted_text(" ".join([name, *only]))


def _side(
    plan_args: tuple[str, ...], side: str, only: tuple[str, ...], quiet: bool, flags: dict[str, JsonValue]
) -> "Plan":
    """The plan of a side: what both share, its own target and server, its own settings last."""
    from inferometer.plan.reading import plan_from
    from inferometer.plan.text import to_mapping

    own, is_plan = _target_of(side)
    plan = plan_of(plan_args if plan_args or not is_plan else (side,), quiet=quiet, **flags)
    mapping = Document({name: value for name, value in to_mapping(plan).items() if name != "server"})
    target = {**mapping.section("target"), **own.section("target")}
    if "server" in own:
        target.pop("url", None)
    return plan_from({**mapping, **own, "target": target}, only, side)


def _target_of(side: str) -> "tuple[Document, bool]":
    """The target that `--a` names, and whether it names a plan."""
    from inferometer.plan.opening import open_plan
    from inferometer.plan.text import parse_yaml, to_mapping

    if side.startswith(("http://", "https://")):
        return Document({"target": {"url": side}}), False
    if side.startswith("server:"):
        return Document({"server": parse_yaml(side.removeprefix("server:"), "server:")[0] or "simulator"}), False
    mapping = to_mapping(open_plan([side]).plan)
    return Document({name: mapping[name] for name in ("target", "server") if name in mapping}), True
