"""A stand-in for an engine, run as a process: answers /health, /v1/models and what a reset asks, and has bad habits.

    engine_at_work.py --port N [--model NAME] [habits...]

Habits: never-ready, exits, ignores-signals, floods, leaks-children, leaks-session, no-health, wants-key, silent-paths,
dies-after-health, refuses-reset.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        if "never-ready" in HABITS and self.path == "/health":
            return self.answer(503)
        if "no-health" in HABITS and self.path == "/health":
            return self.answer(404)
        if "silent-paths" in HABITS and self.path in ("/health", "/v1/models"):
            return self.answer(404)
        if self.path == "/v1/models":
            if "wants-key" in HABITS and self.headers.get("Authorization") != "Bearer sesame":
                return self.answer(401)
            return self.answer(200, {"data": [{"id": MODEL, "owned_by": "test"}]})
        if self.path == "/version":
            return self.answer(200, {"version": "9.8.7"})
        if self.path == "/environment":
            return self.answer(200, dict(os.environ) | {"cwd": str(Path.cwd())})
        return self.answer(200 if self.path in ("/health", "/ready") else 404)

    def do_POST(self) -> None:
        self.answer(404 if self.path != "/flush_cache" else 400 if "refuses-reset" in HABITS else 200)

    def answer(self, status, document=None):
        body = b"" if document is None else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if "dies-after-health" in HABITS and self.path == "/version":
            print("CUDA out of memory", flush=True)
            os._exit(7)

    def log_message(self, *_):
        pass


def leak(new_session):
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=new_session)
    print("child", child.pid, flush=True)


def flood() -> None:
    block = b"".join(b"line %d of a flood that says nothing at all\n" % number for number in range(20_000))
    while True:
        os.write(1, block)


def main() -> None:
    print("engine", os.getpid(), flush=True)
    if "exits" in HABITS:
        sys.exit("no GPU here")
    if "ignores-signals" in HABITS:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: print("not yet", flush=True))
    if "leaks-children" in HABITS:
        leak(new_session=False)
    if "leaks-session" in HABITS:
        leak(new_session=True)
    if "floods" in HABITS:
        threading.Thread(target=flood, daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Answers)
    try:
        while True:
            try:
                server.serve_forever(poll_interval=0.05)
            except KeyboardInterrupt:
                break
    finally:
        print("goodbye", flush=True)
        time.sleep(0)


WORDS = sys.argv[1:]
PORT = int(WORDS[WORDS.index("--port") + 1])
MODEL = WORDS[WORDS.index("--model") + 1] if "--model" in WORDS else "tiny"
HABITS = set(WORDS)

if __name__ == "__main__":
    main()
