"""Makes the plan of a command line: from a file, a profile or another tool's command line, changed by flags."""

import os
import re
from collections.abc import Mapping
from typing import Any

from inferometer.cli.errors import print_message
from inferometer.errors import PlanError
from inferometer.plan.model import Plan, Server
from inferometer.plan.opening import Opened, open_plan
from inferometer.plan.overrides import Defaults, Flags, defaults_in, override, with_flags
from inferometer.plan.reading import plan_from
from inferometer.plan.secrets import redacted_url


def plan_of(plan_args: tuple[str, ...], quiet: bool = False, **flags: Any) -> Plan:
    """The plan of a command line; its notes are printed unless `quiet`."""
    return opened_plan(plan_args, quiet=quiet, **flags).plan


def opened_plan(plan_args: tuple[str, ...], quiet: bool = False, **flags: Any) -> Opened:
    """The same, with the settings that are not defaults: from the plan, a flag, or the environment."""
    opened = changed_plan(plan_args, **flags)
    for note in opened.notes if not quiet else ():
        print_message("note", note)
    return opened


def changed_plan(
    plan_args: tuple[str, ...],
    overrides: tuple[str, ...],
    changes: tuple[str, ...] = (),
    warmup: str | None = None,
    save_prompts: bool = False,
    save_answers: bool = False,
    start: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    **flags: Any,
) -> Opened:
    """The plan that the arguments name (`start` if there are none), changed by flags, then by `--set`."""
    _refuse_address(plan_args)
    usual = defaults_in(environ) if "url" in flags and not _sets_target(overrides) else Defaults()
    typed = Flags(**flags, defaults=usual)
    more = [f"warmup={warmup}"] if warmup is not None else []
    more += ["save.prompts=true"] if save_prompts else []
    more += ["save.answers=true"] if save_answers else []
    settings = [*more, *overrides]
    if start is not None and not plan_args:
        opened = Opened(plan_from(start, settings, "command line", typed), None, [], dict(start))
    else:
        opened = open_plan(plan_args, settings, typed, changes)
    target, server = opened.mapping.get("target"), opened.mapping.get("server")
    is_usual = usual.url and not typed.url and not typed.server and not server
    if is_usual and not (isinstance(target, Mapping) and target.get("url")) and not isinstance(target, str | list):
        addresses = ", ".join(redacted_url(url) for url in opened.plan.target.url)
        opened.notes.append(f"measuring {addresses}, from INFEROMETER_URL")
    mapping = override(with_flags(opened.mapping, typed), settings)
    return Opened(opened.plan, opened.tool, opened.notes, mapping)


def _sets_target(overrides: tuple[str, ...]) -> bool:
    """Whether `--set` sets the target, which overrides the environment."""
    return any(re.match(r"\s*(target\s*=|target\.url\b|server\b)", text) for text in overrides)


def _refuse_address(plan_args: tuple[str, ...]) -> None:
    if len(plan_args) == 1 and re.match(r"https?://|localhost(:\d|$)|[\d.]+:\d", plan_args[0]):
        address = redacted_url(plan_args[0])
        raise PlanError(f"{address}: this is a URL, not a plan", f"inferometer run --url {address}")


def aimed(plan: Plan) -> Plan:
    """The plan with a target: the simulator if it has neither URL nor server."""
    if plan.target.url or plan.server is not None:
        return plan
    return plan.model_copy(update={"server": Server(type="simulator")})
