"""`inferometer simulate`: a plan against the simulator on virtual time, or the simulator as a server."""

from typing import Any

import click

from inferometer.cli.errors import say
from inferometer.cli.options import json_option, plan_argument, plan_of, slowest_option, work_flags

EXAMPLES = """\b
Examples:
  inferometer simulate --rate 10 --duration 1h
      an hour of load in seconds
  inferometer simulate --rate 10 --set server.args.max_sequences=64
      another engine; simulator settings are under server.args
  inferometer simulate --serve --port 8000
      a server to try things on: http://127.0.0.1:8000/v1
"""


@click.command(epilog=EXAMPLES)
@plan_argument
@work_flags
@click.option("--serve", is_flag=True, help="Be a real server in the foreground, until Ctrl-C.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --serve: where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="With --serve; 0: any.")
@slowest_option
@json_option
def simulate(
    plan_words: tuple[str, ...], serve: bool, host: str, port: int, slowest: int, as_json: bool, **flags: Any
) -> int:
    """Run PLAN against the simulator on virtual time: no server, no network, an hour in seconds.

    The summary is that of a run; nothing is kept.
    """
    plan = plan_of(plan_words, **flags)
    if serve:
        from inferometer.simulator.server import run_server
        from inferometer.simulator.virtual import settings_of

        run_server(settings_of(plan), host, port, on_ready=lambda server: _say_ready(host, server.port))
        return 0
    from inferometer.cli.printing import exit_code, print_run
    from inferometer.simulator.virtual import simulated_run

    if plan.target.url:
        say("note", f"{', '.join(plan.target.url)} is not asked: this is a simulation")
    run = simulated_run(plan, lambda text: say("note", text))
    print_run(run, as_json=as_json, slowest=slowest)
    return exit_code(run, shown=not as_json)


def _say_ready(host: str, port: int) -> None:
    say("note", f"the simulator listens at http://{host}:{port}; Ctrl-C ends it")
    say("hint", f"inferometer run --url http://{host}:{port}")
