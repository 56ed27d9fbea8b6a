"""`inferometer dashboard` and `inferometer site`: the store as web pages, served or in a folder."""

import os
import socket
import sys
import threading
from pathlib import Path

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import json_option, quiet_option, store_of, store_option

EVERYWHERE = ("0.0.0.0", "::")


DASHBOARD_EXAMPLES = """\b
Examples:
  inferometer dashboard
      at http://127.0.0.1:8765/, reachable only from this machine, read-only
  inferometer dashboard --port 0 --open
      use any free port and open the browser
  inferometer dashboard --host 0.0.0.0
      reachable from other machines: a token is generated and printed with the address
  inferometer dashboard --write
      allow pages to set tags and baselines and to delete runs
"""


@click.command(epilog=DASHBOARD_EXAMPLES)
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 means all interfaces."
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 means any free port."
)
@click.option(
    "--token",
    "require_token",
    is_flag=True,
    help="Require a token on this machine too. Other addresses always require one.",
)
@click.option("--write", is_flag=True, help="Allow pages to set tags and baselines and to delete runs.")
@click.option("--open", "opens", is_flag=True, help="Open the dashboard in the browser.")
@store_option
def dashboard(host: str, port: int, require_token: bool, write: bool, opens: bool, store: str | None) -> int:
    """Serve the store as a web dashboard until Ctrl-C.

    The address is printed on stdout. The token is read from $INFEROMETER_TOKEN, or generated at each start.
    """
    from inferometer.cli.errors import print_message
    from inferometer.conduct.dashboard import new_token, serve_dashboard
    from inferometer.show.dashboard.access import is_loopback

    kept_in = store_of(store)
    given = os.environ.get("INFEROMETER_TOKEN") or None
    token = given or new_token() if require_token or not is_loopback(host) else None

    def ready(address: str) -> None:
        shown = f"{address}?token={token}" if token and not given else address
        print_message("note", f"{kept_in}, {'pages can change it' if write else 'read-only'}; Ctrl-C stops it")
        if host in EVERYWHERE:
            print_message(
                "note",
                f"from other machines use this machine's name, for example {socket.gethostname()}, and the same port",
            )
        if token and given:
            print_message("note", "log in with the token of $INFEROMETER_TOKEN")
        echo(shown)
        if opens:
            click.launch(shown)

    serve_dashboard(kept_in, host=host, port=port, token=token, write=write, ready=ready)
    _leave()
    return 0


def _leave() -> None:
    """At once: a thread that still makes an answer cannot be stopped, and Python would wait for it."""
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


SITE_EXAMPLES = """\b
Examples:
  inferometer site -o public/
      repeat after each run: only changed files are written
  inferometer site -o public/ --where tag=nightly
      only some runs, selected as in inferometer list
  python -m http.server --directory public
      view the site; opening public/index.html from disk works too
"""


@click.command(epilog=SITE_EXAMPLES)
@click.option(
    "--output", "-o", default="public", show_default=True, metavar="FOLDER", help="Folder to write the site to."
)
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION", help="Include only matching runs. Repeatable."
)
@click.option(
    "--charts",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Draw run charts for the N newest runs; histories are always drawn.",
)
@json_option
@quiet_option
@store_option
def site(output: str, conditions: tuple[str, ...], charts: int, as_json: bool, quiet: bool, store: str | None) -> None:
    """Write the store as a static site, for GitHub Pages or any web server.

    Addresses, host names, commands and environment variables are left out, so the site can be published.
    """
    from inferometer.cli.errors import print_message
    from inferometer.cli.printing import print_json
    from inferometer.conduct.dashboard import site as write_site

    built = write_site(Path(output).expanduser(), store_of(store), where=conditions, charts=charts)
    if as_json:
        print_json(built.document(), "site")
    elif not quiet:
        echo(f"{built.path}: {built.runs:,} runs; {len(built.written)} files written, {len(built.removed)} removed")
    if built.unreadable:
        some = ", ".join(built.unreadable[:3]) + (", ..." if len(built.unreadable) > 3 else "")
        many = "run" if len(built.unreadable) == 1 else "runs"
        print_message("warning", f"{len(built.unreadable)} {many} could not be read and are not shown: {some}")
