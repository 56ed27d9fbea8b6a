"""`python -m inferometer.simulator`: the server as a child process; prints one line of JSON with its address."""

import argparse
import json
import os
import sys
from pathlib import Path

from inferometer.errors import InferometerError
from inferometer.simulator.server import SimulatorServer, run_server
from inferometer.simulator.settings import settings_from


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        run_server(
            settings_from(json.loads(options.settings), "settings"),
            options.host,
            options.port,
            on_ready=lambda server: _print_ready(server, options.host),
            truth_path=options.truth,
            until_stdin_closes=options.until_stdin_closes,
        )
    except InferometerError as error:
        for line in error.message.splitlines():
            print(f"error: {line}", file=sys.stderr)
        return error.exit_code
    except json.JSONDecodeError as error:
        print(f"error: --settings is not JSON: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {options.host}:{options.port}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m inferometer.simulator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--settings", default="{}", help="JSON object, see simulator.settings")
    parser.add_argument("--truth", type=Path, help="file for the truth log, .json or .npz, written at the end")
    parser.add_argument("--until-stdin-closes", action="store_true", help="exit when the parent process exits")
    return parser


def _print_ready(server: SimulatorServer, host: str) -> None:
    line = {"port": server.port, "url": f"http://{host}:{server.port}", "model": server.settings.model}
    print(json.dumps(line | {"pid": os.getpid()}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
