"""`python -m inferometer.router`: the router as a child process; prints one line of JSON with its address."""

import argparse
import json
import os
import sys

from inferometer.errors import InferometerError
from inferometer.router.proxy import RouterProxy
from inferometer.router.serving import run_router
from inferometer.router.settings import router_settings


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inferometer.router", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--settings", required=True, help="JSON object, see router.settings")
    parser.add_argument("--ready", type=float, default=0.0, help="seconds to wait for the first replica")
    parser.add_argument("--until-stdin-closes", action="store_true", help="exit when the parent process exits")
    options = parser.parse_args(arguments)

    def ready(router: RouterProxy) -> None:
        line = {"port": router.port, "url": f"http://{options.host}:{router.port}", "pid": os.getpid()}
        print(json.dumps(line), flush=True)

    try:
        settings = router_settings(json.loads(options.settings))
        run_router(
            settings,
            options.host,
            options.port,
            ready_s=options.ready,
            on_ready=ready,
            until_stdin_closes=options.until_stdin_closes,
        )
    except InferometerError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return error.exit_code
    except json.JSONDecodeError as error:
        print(f"error: --settings is not JSON: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
