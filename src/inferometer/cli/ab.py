"""`inferometer ab`: two targets in turns."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inferometer.cli.errors import INVALID, LIMIT_FAILED, notes_once, say
from inferometer.cli.options import json_option, plan_argument, quiet_option, store_of, store_option, work_flags

if TYPE_CHECKING:
    from inferometer.conduct.ab import Compared, Design
    from inferometer.plan.model import Plan

EXAMPLES = """\b
Examples:
  inferometer ab --a http://gpu1:8000 --b http://gpu2:8000 --rate 4
      two servers that run already, 10 blocks of 20 s each
  inferometer ab chat --a http://localhost:8000 --b http://localhost:8001 --blocks 6 --block 60s
      with a ready plan: what both are asked
  inferometer ab --a server:simulator --b 'server:{type: simulator, args: {speed: 1.3}}' --block 5s
      two servers that are started, and run side by side
  inferometer ab plan.yaml --a stable.yaml --b canary.yaml --set-b server.env.CUDA_VISIBLE_DEVICES=1
      target and server from a plan each
  inferometer ab --a http://localhost:8000 --b http://localhost:8000 --concurrency 16
      A/A: what this machine and this server call a difference
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@click.option("--a", "side_a", required=True, metavar="SIDE", help="A URL, a plan, or server:KIND: what is there now.")
@click.option("--b", "side_b", required=True, metavar="SIDE", help="The same: what it is compared with.")
@click.option("--blocks", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Of each side.")
@click.option("--block", default="20s", show_default=True, metavar="TIME", help="How long each lasts.")
@click.option("--model", metavar="NAME", help="Model to ask both for. [default: what each server offers]")
@click.option("--api", metavar="API", help="How both are spoken to. [default: completions]")
@click.option("--set-a", "only_a", multiple=True, metavar="PATH=VALUE", help="A setting of A alone. Repeatable.")
@click.option("--set-b", "only_b", multiple=True, metavar="PATH=VALUE", help="A setting of B alone. Repeatable.")
@click.option("--measure", "measures", multiple=True, metavar="NAMES", help="Only these: ttft.p99,output_rate.")
@click.option("--all", "every", is_flag=True, help="Every measure that can be better or worse.")
@click.option("--margin", default="5%", show_default=True, metavar="SHARE", help="A smaller change is called same.")
@click.option("--fail-on-worse", is_flag=True, help="Exit with 1 where B is worse in a measure.")
@work_flags
@json_option
@quiet_option
@store_option
def ab(
    plan_words: tuple[str, ...],
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
    """Compare two targets in turns: A B B A A B B A ..., each block a run that is kept.

    Both blocks of a pair send the same requests at the same times, so that a pair differs only by its targets, and a
    drift of the machine hits both. The differences of the pairs give the interval of each measure.
    """
    from inferometer.conduct.ab import ab as compare_in_turns
    from inferometer.show.comparison import print_block

    if flags.get("duration") or flags.get("requests"):
        raise click.UsageError("--duration and --requests: a block ends after its time, --block")
    plan_a = _side(plan_words, side_a, only_a, quiet, flags)
    plan_b = _side(plan_words, side_b, only_b, True, flags)
    found = compare_in_turns(
        plan_a,
        plan_b,
        _design(blocks, block, measures, every, margin),
        store=store_of(store),
        notes=None if quiet else notes_once(),
        on_block=None if quiet else (lambda each: print_block(each.pair, blocks, each.side, each.run)),
    )
    names = {"a": _named(side_a, only_a), "b": _named(side_b, only_b)}
    _print(found, names, blocks, as_json)
    return _exit_code(found, fail_on_worse, as_json)


def _design(blocks: int, block: str, measures: tuple[str, ...], every: bool, margin: str) -> "Design":
    from inferometer.conduct.ab import Design
    from inferometer.errors import PlanError
    from inferometer.vocabulary import percent, seconds

    try:
        design = Design(blocks, seconds(block), measures, every, margin=percent(margin))
    except ValueError as error:
        raise PlanError(str(error)) from None
    if design.block_s <= 0:
        raise PlanError(f"--block must be longer than 0, got {block}")
    return design


def _print(found: "Compared", names: dict[str, str], blocks: int, as_json: bool) -> None:
    from inferometer.cli.printing import print_json
    from inferometer.show.comparison import print_ab
    from inferometer.show.console import console

    if as_json:
        print_json(found.document())
    else:
        print_ab(found.comparison, names, found.left_out, blocks, str(found.experiment), console())


def _exit_code(found: "Compared", fail_on_worse: bool, as_json: bool) -> int:
    """What it means for a script, said on stderr."""
    from inferometer.judge.ending import exit_code, losses

    last = found.blocks[-1].run
    if last.state == "interrupted":
        say("warning", "interrupted; the pairs that were complete are compared, and all blocks are kept")
        return exit_code(last)
    if lost := losses(last):
        say("error", f"{' '.join(lost)} The pairs that were complete are compared, and all blocks are kept")
        return INVALID
    if found.comparison.refused:
        reasons = [each.text for each in found.comparison.objections if each.word == "refuse"]
        say("error", f"not valid as a measurement: {' '.join(reasons) if as_json else 'the reason is above'}")
        return INVALID
    return LIMIT_FAILED if fail_on_worse and found.comparison.word == "worse" else 0


def _named(said: str, only: tuple[str, ...]) -> str:
    from inferometer.plan.secrets import redacted_text, redacted_url

    name = redacted_url(said) if said.startswith(("http://", "https://")) else said
    return redacted_text(" ".join([name, *only]))


def _side(words: tuple[str, ...], said: str, only: tuple[str, ...], quiet: bool, flags: dict[str, Any]) -> "Plan":
    """The plan of a side: what both are asked, its own target and server, its own settings last."""
    from inferometer.cli.options import plan_of
    from inferometer.plan.reading import plan_from
    from inferometer.plan.writing import to_mapping

    own, is_plan = _target_of(said)
    asked = plan_of(words if words or not is_plan else (said,), quiet=quiet, **flags)
    mapping = {name: value for name, value in to_mapping(asked).items() if name != "server"}
    target = {**(mapping.get("target") or {}), **(own.get("target") or {})}
    if "server" in own:
        target.pop("url", None)
    return plan_from({**mapping, **own, "target": target}, only, said)


def _target_of(said: str) -> tuple[dict[str, Any], bool]:
    """What `--a` says of the target, and whether it names a plan."""
    from inferometer.plan.opening import open_plan
    from inferometer.plan.text import parse_yaml
    from inferometer.plan.writing import to_mapping

    if said.startswith(("http://", "https://")):
        return {"target": {"url": said}}, False
    if said.startswith("server:"):
        return {"server": parse_yaml(said.removeprefix("server:"), "server:")[0] or "simulator"}, False
    mapping = to_mapping(open_plan([said]).plan)
    return {name: mapping[name] for name in ("target", "server") if name in mapping}, True
