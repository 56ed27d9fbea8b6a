"""Compares two targets in alternating blocks."""

from pathlib import Path
from typing import Any

import click

from inferometer.cli.errors import INVALID, LIMIT_FAILED, notes_once, print_message
from inferometer.cli.work.plans import plan_of
from inferometer.cli.work.stores import store_of
from inferometer.conduct.ab import Compared, Design
from inferometer.conduct.ab import ab as compare_in_turns
from inferometer.documents.document import Document, JsonValue
from inferometer.errors import PlanError
from inferometer.judge.limits import exit_code, losses
from inferometer.plan.model import Plan
from inferometer.plan.opening import open_plan
from inferometer.plan.reading import plan_from
from inferometer.plan.secrets import redacted_text, redacted_url
from inferometer.plan.text import parse_yaml, to_mapping
from inferometer.record.encoding import result_document
from inferometer.show.comparison import print_ab, print_block
from inferometer.show.console import console, print_json
from inferometer.vocabulary import percent, seconds


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


def _design(blocks: int, block: str, measures: tuple[str, ...], every: bool, margin: str) -> Design:
    try:
        design = Design(blocks, seconds(block), measures, every, margin=percent(margin))
    except ValueError as error:
        raise PlanError(str(error)) from None
    if design.block_s <= 0:
        raise PlanError(f"--block must be longer than 0, got {block}")
    return design


def _print(result: Compared, names: dict[str, str], blocks: int, as_json: bool) -> None:
    if as_json:
        print_json(result_document("comparison", result.result))
    else:
        print_ab(result.comparison, names, result.left_out, blocks, str(result.experiment), console())


def _exit_code(result: Compared, fail_on_worse: bool, as_json: bool) -> int:
    """The result for a script, printed on stderr."""
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
    name = redacted_url(side) if side.startswith(("http://", "https://")) else side
    return redacted_text(" ".join([name, *only]))


def _side(
    plan_args: tuple[str, ...], side: str, only: tuple[str, ...], quiet: bool, flags: dict[str, JsonValue]
) -> Plan:
    """The plan of a side: the shared plan with the target, the server and the settings of this side."""
    own, is_plan = _target_of(side)
    plan = plan_of(plan_args if plan_args or not is_plan else (side,), quiet=quiet, **flags)
    mapping = Document({name: value for name, value in to_mapping(plan).items() if name != "server"})
    target = {**mapping.section("target"), **own.section("target")}
    if "server" in own:
        target.pop("url", None)
    return plan_from({**mapping, **own, "target": target}, only, side)


def _target_of(side: str) -> tuple[Document, bool]:
    """The target that `--a` names, and whether it names a plan."""
    if side.startswith(("http://", "https://")):
        return Document({"target": {"url": side}}), False
    if side.startswith("server:"):
        return Document({"server": parse_yaml(side.removeprefix("server:"), "server:")[0] or "simulator"}), False
    mapping = to_mapping(open_plan([side]).plan)
    return Document({name: mapping[name] for name in ("target", "server") if name in mapping}), True
