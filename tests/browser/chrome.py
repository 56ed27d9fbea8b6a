"""A headless Chromium driven by the DevTools protocol: its console, network requests and page content."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import ClientConnection, connect

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 60.0  # a busy machine is slow; nobody waits where it is not
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-default-browser-check"),
    *("--disable-features=Translate,MediaRouter,OptimizationHints", "--remote-debugging-port=0", "--mute-audio"),
)


def found() -> str | None:
    """Where Chromium is, if it is installed."""
    return os.environ.get("INFEROMETER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium() -> Iterator["Browser"]:
    program = found()
    assert program is not None
    profile = Path(tempfile.mkdtemp(prefix="chromium-"))
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Browser(_port(profile, process))
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(profile, ignore_errors=True)


def _port(profile: Path, process: subprocess.Popen[bytes]) -> int:
    file = profile / "DevToolsActivePort"

    def said() -> int | None:
        assert process.poll() is None, "chromium ended at once"
        text = file.read_text() if file.exists() else ""
        return int(text.split()[0]) if "\n" in text else None

    return until(said, "chromium to listen")


def until(ask: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What `ask` says as soon as it says something; waits for a condition, not for a time."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if answer := ask():
            return answer
        time.sleep(0.03)
    raise AssertionError(f"waited {patience_s:g} s for {what}")


class Browser:
    def __init__(self, port: int) -> None:
        self._origin = f"http://127.0.0.1:{port}"

    @contextmanager
    def tab(self) -> Iterator["Tab"]:
        """A tab with cookies and storage of its own would need a context; tests use ports of their own instead."""
        from urllib.request import Request

        with urlopen(Request(f"{self._origin}/json/new?about:blank", method="PUT")) as answer:
            target = json.load(answer)
        with connect(target["webSocketDebuggerUrl"], max_size=None, ping_interval=None) as line:
            tab = Tab(line)
            yield tab
            tab.ask("Page.close")


class Tab:
    """`errors`: what the console has, of any kind, and what the page threw. `requests`: every address that was
    asked for."""

    def __init__(self, line: ClientConnection) -> None:
        self._line = line
        self._numbers = itertools.count(1)
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.failed: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._line.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._line.recv(timeout=PATIENCE_S))
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.errors.append(" ".join(str(each.get("value", each.get("description"))) for each in said["args"]))
            case "Runtime.exceptionThrown":
                thrown = said["exceptionDetails"]
                self.errors.append(str(thrown.get("exception", {}).get("description") or thrown["text"]))
            case "Log.entryAdded":
                self.errors.append(f"{said['entry']['text']} {said['entry'].get('url', '')}")
            case "Network.requestWillBeSent":
                self.requests.append(said["request"]["url"])
            case "Network.responseReceived" if said["response"]["status"] >= 400:
                self.failed.append(f"{said['response']['status']} {said['response']['url']}")

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        until(lambda: self.run("document.readyState") == "complete", f"{address} to load")

    def run(self, script: str) -> Any:
        said = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise AssertionError(said["exceptionDetails"].get("exception", {}).get("description") or script)
        return said["result"].get("value")

    def wait(self, script: str, patience_s: float = PATIENCE_S) -> Any:
        """Until a script says something true; an element is true. Between two pages there is no body."""
        asked = f"document.body && (found => found instanceof Node || found)({script})"
        try:
            return until(lambda: self._run_unless_leaving(asked), script, patience_s)
        except AssertionError as error:
            raise AssertionError(f"{error}\non {self.text()[:600]}") from None

    def _run_unless_leaving(self, script: str) -> Any:
        try:
            return self.run(script)
        except RuntimeError as error:  # a click just now: the page goes while it is asked
            if "navigated" not in str(error):
                raise
            return None

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def press(self, key: str, code: int | None = None) -> None:
        more = {"windowsVirtualKeyCode": code} if code else {}
        text = {"text": "\r"} if key == "Enter" else {"text": " "} if key == " " else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **more, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def type(self, selector: str, text: str) -> None:
        """As a keyboard would."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of it: what is covered or hidden is not hit."""
        box = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'});"
            "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)

    def picture(self, file: Path) -> None:
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(found["data"]))
