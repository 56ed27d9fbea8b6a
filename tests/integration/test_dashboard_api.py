"""The dashboard over HTTP: what it answers, and what it refuses."""

import http.client
import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from dashboards import dashboard
from inferometer.record.environment import Environment
from inferometer.store.store import open_store
from shown_stores import NASTY, shown_store


class Client:
    def __init__(self, address):
        self.host = urlsplit(address).netloc

    def ask(self, path, method="GET", body=None, **headers):
        """The path goes out as it is: no library tidies it up."""
        line = http.client.HTTPConnection(self.host, timeout=20)
        line.putrequest(method, path, skip_host="Host" in headers)
        content = json.dumps(body).encode() if body is not None else b""
        if content:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(content))}
        for name, value in headers.items():
            line.putheader(name, value)
        line.endheaders(content)
        answer = line.getresponse()
        text = answer.read()
        line.close()
        return answer, text

    def json(self, path):
        answer, text = self.ask(path)
        assert answer.status == 200, text
        return json.loads(text)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return shown_store(tmp_path_factory.mktemp("shown") / "store").home


@pytest.fixture(scope="module")
def api(store):
    with dashboard(store) as address:
        yield Client(address)


def test_runs_are_filtered_by_the_words_of_list(api, store):
    where = quote("ttft.p50 < 100ms")
    found = api.json(
        f"/api/runs?where={where}&where=engine_version%3D0.24.0&sort=ttft.p50&columns=plan.load.concurrency"
    )
    same = open_store(store).runs(where=["ttft.p50 < 100ms", "engine_version=0.24.0"], sort="ttft.p50")
    assert [run["id"] for run in found["runs"]] == [entry.id for entry in same][:50]
    assert found["total"] == len(same) > 0
    assert {run["more"]["plan.load.concurrency"] for run in found["runs"]} == {"8"}


def test_search_finds_words_anywhere_and_pages_go_on(api):
    assert api.json("/api/runs?search=NIGHTLY")["total"] == 1
    assert api.json("/api/runs?search=vllm+0.25.0")["total"] < api.json("/api/runs")["total"]
    first, second = (api.json(f"/api/runs?limit=5&offset={offset}")["runs"] for offset in (0, 5))
    assert not {run["id"] for run in first} & {run["id"] for run in second}


def test_a_wrong_condition_is_told_as_on_the_command_line(api):
    answer, text = api.ask("/api/runs?where=ttfft.p99%3C1")
    assert answer.status == 400 and "ttft" in json.loads(text)["hint"]


def test_nothing_tells_where_files_are(api, store):
    for path in ("/api/runs", "/api/runs/latest", "/api/histories"):
        assert str(store) not in api.ask(path)[1].decode()


def test_history_has_its_steps_and_versions(api):
    families = api.json("/api/histories")["histories"]
    nightly = max(families, key=lambda each: each["runs"])
    (line,) = api.json(f"/api/histories/{nightly['id']}?measures=ttft.p50")["lines"]
    assert {"300 in, 100 out", "2,000 in, 400 out"} <= set(line["series"])
    step = line["changes"]["300 in, 100 out"][0]
    assert step["at"].startswith("2026-09-21") and step["change"] == pytest.approx(0.33, abs=0.05)
    assert "version 0.25.0" in json.dumps(line["chart"]["spec"])


def test_any_runs_are_compared(api):
    runs = [
        run["id"] for run in api.json("/api/runs?where=plan.workload.input_tokens%3D2000&sort=started&limit=4")["runs"]
    ]
    found = api.json(f"/api/compare?before={','.join(runs[:2])}&after={','.join(runs[2:])}")
    assert found["comparison"]["changes"] and [len(side) for side in found["runs"].values()] == [2, 2]
    assert all(len(line["values"]) == 4 for line in found["table"])
    assert found["charts"][0]["name"] == "comparison"


def test_an_experiment_is_a_grid_and_curves(api, store):
    (kept,) = api.json("/api/experiments")["experiments"]
    found = api.json(f"/api/experiments/{kept['id']}")
    assert len(found["grid"]) == 9 and found["grid"][-1]["error"] == "refused"
    assert {"experiment_grid-ttft-p50", "experiment_curves-ttft-p50"} <= {chart["name"] for chart in found["charts"]}


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs/..",
        "/api/runs/../../etc/passwd",
        "/api/runs/..%2f..%2f..%2fetc%2fpasswd",
        "/api/runs/%2fetc",
        "/api/runs/%2e%2e%2fsecret",
        "/api/runs/outside",
        "/api/runs/linked",
        "/api/runs/latest/files/..%2f..%2fsecret.txt",
        "/api/runs/latest/files/%2fetc%2fpasswd",
        "/api/runs/latest/files/link.log",
        "/api/runs/20260901-030000-linked-plan",
        "/api/runs/20260901-030000-linked-plan/charts",
        "/api/experiments/linked",
        "/api/runs/latest/files/records.parquet",
        "/api/runs/latest/files/.hidden.log",
        "/api/runs/latest%00/files/server.log",
        "/api/experiments/..",
        "/api/experiments/..%2fruns",
        "/api/experiments/%2fetc",
        "/api/compare?before=%2fetc&after=latest",
        "/api/compare?before=..%2f..%2foutside&after=latest",
        "/assets/..%2fapp.py",
        "/assets/../app.py",
        "/assets/%2fetc%2fpasswd",
        "//etc/passwd",
    ],
)
def test_no_request_reads_outside_the_store(api, store, path: str):
    _lay_traps(store)
    answer, text = api.ask(path)
    assert answer.status in (400, 403, 404), (answer.status, text[:200])
    assert b"SECRET" not in text and b"root:" not in text


def _lay_traps(store: Path) -> None:
    """A run, a file and links that lead out of the store."""
    newest = open_store(store).entry("latest").folder
    outside = store.parent / "outside"
    if outside.exists():
        return
    outside.mkdir()
    for name in ("run.json", "plan.yaml", "summary.json", "verdict.json"):
        (outside / name).write_bytes((newest / name).read_bytes())
    (outside / "server.log").write_text("SECRET")
    (store.parent / "secret.txt").write_text("SECRET")
    (newest / "link.log").symlink_to(store.parent / "secret.txt")
    (newest / ".hidden.log").write_text("SECRET")
    (store / "runs" / "linked").symlink_to(outside)
    within = store / "runs" / "20260901-030000-linked-plan"
    within.mkdir()
    for name in ("run.json", "summary.json", "verdict.json", "environment.json"):
        (within / name).write_bytes((newest / name).read_bytes())
    (outside / "plan.yaml").write_text("name: SECRET\n")
    (within / "plan.yaml").symlink_to(outside / "plan.yaml")
    (outside / "experiment.json").write_text('{"kind": "sweep", "name": "SECRET"}')
    (store / "experiments" / "linked").symlink_to(outside)
    (store / "experiments" / "torn").mkdir()
    (store / "experiments" / "torn" / "experiment.json").write_text('{"kind": "sw')


def test_experiments_that_are_torn_or_linked_from_elsewhere_hide_no_other(api, store):
    _lay_traps(store)
    assert [each["name"] for each in api.json("/api/experiments")["experiments"]] == ["concurrency <b>sweep</b>"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/nothing", 404, "not found"),
        ("/api/runs?limit=0", 400, "limit: "),
        ("/api/compare?before=latest", 400, "after: "),
        ("/api/runs/20260902-030000-half-copied", 409, "summary.json"),
    ],
)
def test_mistakes_are_told_in_one_form_and_not_where_the_store_is(api, store, path: str, status: int, said: str):
    half = store / "runs" / "20260902-030000-half-copied"
    if not half.exists():
        shutil.copytree(open_store(store).entry("latest").folder, half, symlinks=True)
        (half / "summary.json").write_text("{")
    answer, text = api.ask(path)
    assert answer.status == status and set(json.loads(text)) == {"error", "hint"}, text
    assert said in json.loads(text)["error"] and str(store) not in text.decode()


def test_a_file_of_a_run_is_shown_as_text(api):
    answer, text = api.ask("/api/runs/latest~1/files/server.log")
    assert text == b"INFO started\n" and answer.getheader("content-type").startswith("text/plain")
    assert answer.getheader("x-content-type-options") == "nosniff"


def test_every_answer_keeps_the_page_to_itself(api):
    for path in ("/", "/api/runs", "/assets/words.js", "/api", "/nowhere"):
        policy = api.ask(path)[0].getheader("content-security-policy")
        assert "default-src 'none'" in policy and "http" not in policy and "unsafe-eval" not in policy


def test_scripts_are_kept_by_the_browser_under_the_number_of_their_content_only(api):
    address = re.search(rb'src="(assets/words.js[?][^"]+)"', api.ask("/")[1])[1].decode()
    kept = {path: api.ask(path)[0].getheader("cache-control") for path in (f"/{address}", "/assets/words.js?1")}
    assert "immutable" in kept[f"/{address}"] and kept["/assets/words.js?1"] == "no-cache"


def test_pages_and_reference_load_nothing_from_elsewhere(api):
    for path in ("/", "/run.html", "/history.html", "/compare.html", "/experiments.html", "/experiment.html", "/api"):
        text = api.ask(path)[1].decode()
        assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", text), path


def test_names_that_are_html_stay_text(api):
    text = api.ask("/api/runs?search=onerror")[1].decode()
    assert json.loads(text)["runs"][0]["model"] == NASTY
    assert api.ask("/api/runs?search=onerror")[0].getheader("content-type") == "application/json"


def test_the_reference_has_every_address(api):
    openapi = api.json("/api/openapi.json")
    text = api.ask("/api")[1].decode()
    assert len(openapi["paths"]) >= 12
    assert all(path in text for path in openapi["paths"])
    assert all(said.get("description") for methods in openapi["paths"].values() for said in methods.values())


def test_a_page_elsewhere_cannot_ask_through_a_name_of_its_own(api):
    assert api.ask("/api/runs", Host="evil.example:80")[0].status == 421
    assert api.ask("/api/runs", Host="localhost:1")[0].status == 200


def test_it_is_read_only_unless_told(api):
    for method, path in (
        ("POST", "/api/runs/latest/tags"),
        ("DELETE", "/api/runs/latest"),
        ("PUT", "/api/baselines/x"),
    ):
        answer, text = api.ask(path, method, {"tags": ["x"]}, **{"X-Inferometer": "1"})
        assert answer.status == 403 and b"--write" in text


def test_with_write_tags_baselines_and_deletion(tmp_path: Path) -> None:
    store = shown_store(tmp_path / "store")
    own = {"X-Inferometer": "1"}
    with dashboard(store.home, "--write") as address:
        api = Client(address)
        last = api.json("/api/runs?limit=1")["runs"][0]["id"]
        assert api.ask(f"/api/runs/{last}/tags", "POST", {"tags": ["kept"]})[0].status == 403, "no header of ours"
        other = own | {"Origin": "http://evil.example"}
        assert api.ask(f"/api/runs/{last}/tags", "POST", {"tags": ["kept"]}, **other)[0].status == 403
        assert json.loads(api.ask(f"/api/runs/{last}/tags", "POST", {"tags": ["kept"]}, **own)[1])["tags"][0] == "kept"
        assert api.ask("/api/baselines/main", "PUT", {"run": last}, **own)[0].status == 200
        assert api.json(f"/api/runs/{last}")["marks"]["baselines"] == ["main"]
        assert api.ask(f"/api/runs/{last}/tags/kept", "DELETE", **own)[0].status == 200
        assert api.ask("/api/runs/latest", "DELETE", **own)[0].status == 400, "the whole id is needed"
        assert api.ask(f"/api/runs/{last}", "DELETE", **own)[0].status == 200
        assert api.ask(f"/api/runs/{last}")[0].status == 404


def test_elsewhere_a_token_is_needed(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--host", "0.0.0.0") as address:
        said = urlsplit(address)
        token = said.query.removeprefix("token=")
        assert len(token) >= 24
        api = Client(f"http://127.0.0.1:{said.port}/")
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "inferometer=wrong"}, {"Cookie": "=;\x01"}):
            assert api.ask("/api/runs", **headers)[0].status == 401
        assert api.ask("/api/runs?token=wrong")[0].status == 401
        assert api.ask("/api/runs", Authorization=f"Bearer {token}")[0].status == 200
        answer, _ = api.ask(f"/run.html?id=a&token={token}")
        assert answer.status == 303 and answer.getheader("location") == "/run.html?id=a"
        cookie = answer.getheader("set-cookie")
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert api.ask("/api/runs", Cookie=cookie.partition(";")[0])[0].status == 200


def test_the_token_of_the_environment_is_not_printed(tmp_path: Path) -> None:
    with dashboard(tmp_path, "--token", env={"INFEROMETER_TOKEN": "known-to-us-both-abcdef"}) as address:
        assert "known" not in address
        assert Client(address).ask("/api/runs", Authorization="Bearer known-to-us-both-abcdef")[0].status == 200


def test_an_empty_store_has_pages_too(tmp_path: Path) -> None:
    with dashboard(tmp_path / "empty") as address:
        api = Client(address)
        assert api.json("/api/runs") == {"total": 0, "offset": 0, "runs": [], "hidden": 0}
        assert api.json("/api/histories") == {"histories": []}
        assert api.json("/api/experiments") == {"experiments": []}
        assert api.ask("/api/runs/latest")[0].status == 404


def test_a_run_that_is_being_written_is_told_as_such(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    folder = store.new_run()
    folder.write_plan({"load": {"rate": 5}})
    with dashboard(store.home) as address:
        folder.write_environment(Environment())  # a sign of life, however long the server took to start
        now = Client(address).json(f"/api/runs/{folder.id}/live")
    assert now["run"]["run"]["state"] == "partial" and now["running"] and now["run"]["quantities"] == []


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with dashboard(tmp_path) as address:
        port = urlsplit(address).port
        with pytest.raises(AssertionError, match="--port 0"), dashboard(tmp_path, port=port):
            pass
