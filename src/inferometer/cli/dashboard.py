"""`inferometer dashboard`: the store as a web page."""

import os
import socket

import click

from inferometer.cli.errors import echo
from inferometer.cli.options import store_of, store_option

EVERYWHERE = ("0.0.0.0", "::")
EXAMPLES = """\b
Examples:
  inferometer dashboard
      at http://127.0.0.1:8765/, for this machine alone, read-only
  inferometer dashboard --port 0 --open
      any free port, and the browser with it
  inferometer dashboard --host 0.0.0.0
      for others too: a token is made, and printed with the address
  inferometer dashboard --write
      pages may set tags and baselines and delete runs
"""


@click.command(epilog=EXAMPLES)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 is everywhere.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one.")
@click.option("--token", "asks_token", is_flag=True, help="Ask for a token on this machine too. Elsewhere always.")
@click.option("--write", is_flag=True, help="Let pages set tags and baselines and delete runs.")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@store_option
def dashboard(host: str, port: int, asks_token: bool, write: bool, opens: bool, store: str | None) -> int:
    """Show the store as a web page, until Ctrl-C.

    The address is printed on stdout. A token is taken from $INFEROMETER_TOKEN, or made anew each time.
    """
    from inferometer.cli.errors import say
    from inferometer.conduct.dashboard import new_token, serve_dashboard
    from inferometer.show.dashboard.access import is_loopback

    kept_in = store_of(store)
    given = os.environ.get("INFEROMETER_TOKEN") or None
    token = given or new_token() if asks_token or not is_loopback(host) else None

    def ready(address: str) -> None:
        shown = f"{address}?token={token}" if token and not given else address
        say("note", f"{kept_in}, {'pages may change it' if write else 'read-only'}; Ctrl-C ends it")
        if host in EVERYWHERE:
            say("note", f"from elsewhere by a name of this machine, such as {socket.gethostname()}, with the same port")
        if token and given:
            say("note", "open it with ?token= and the token from $INFEROMETER_TOKEN")
        echo(shown)
        if opens:
            click.launch(shown)

    serve_dashboard(kept_in, host=host, port=port, token=token, write=write, ready=ready)
    return 0
