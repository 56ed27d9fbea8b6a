"""The files in deploy/: valid by the published schemas, and every command in them runs, with the simulator."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from github_stand_in import Runner

from inferometer.conduct.compare import history_of
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.store.store import open_store
from receivers import receiving

DEPLOY = Path(__file__).parents[2] / "deploy"
ONLINE = """\
name: online
plan:
  server: {type: vllm, args: {speed: 20}}
  target: {api: completions, model: m}
  load: {tokens_per_s: 20000}
  stop: {requests: 20}
zip:
  workload.input_tokens: [30, 50]
  workload.output_tokens: [10, 20]
"""


@pytest.mark.parametrize(
    ("schema", "pattern"),
    [
        ("vendor.github-workflows", "github/workflows/*.yaml"),
        ("vendor.github-actions", "github/action.yml"),
        ("vendor.gitlab-ci", "gitlab/.gitlab-ci.yml"),
    ],
)
def test_files_are_valid_by_their_schemas(schema: str, pattern: str) -> None:
    files = [str(file) for file in DEPLOY.glob(pattern)]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert files and done.returncode == 0, done.stdout + done.stderr


def test_no_input_is_pasted_into_a_script() -> None:
    """What somebody types into a form reaches bash as a variable, never as a part of the program."""
    for file in (DEPLOY / "github" / "action.yml", *(DEPLOY / "github" / "workflows").glob("*.yaml")):
        for match in re.finditer(
            r"(?:run|command): *(\|.*?|>-.*?|.*?)(?=\n *[\w-]+:|\n *- )", file.read_text(), re.DOTALL
        ):
            assert "${{" not in match[1], (file.name, match[1])


def test_scripts_are_bash() -> None:
    for script in DEPLOY.rglob("*.sh"):
        assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


@pytest.fixture
def remote(tmp_path: Path):
    """A repository with our files in it, and experiments that take a second."""
    work, bare = tmp_path / "work", tmp_path / "remote.git"
    shutil.copytree(DEPLOY / "github", work / "deploy" / "github")
    (work / "online.yaml").write_text(ONLINE)
    (work / "own.yaml").write_text(
        ONLINE.replace("vllm", "simulator").replace("[30, 50]", "[30]").replace("[10, 20]", "[10]")
    )
    (work / "nightly.txt").write_text("online.yaml\n\n")
    (work / "weekly.txt").write_text("own.yaml\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], cwd=work, check=True)
    subprocess.run([*git, "checkout", "-q", "--orphan", "inferometer-results"], cwd=work, check=True)
    subprocess.run([*git, "rm", "-rfq", "."], cwd=work, check=True)
    keep_curve(curve_of([]), work)  # how well we measure is another test's matter
    for words in (["add", "-A"], ["commit", "-qm", "results"], ["checkout", "-q", "main"]):
        subprocess.run([*git, *words], cwd=work, check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(work), str(bare)], check=True)
    return bare


def published(remote, branch="inferometer-results"):
    words = ["git", "ls-tree", "-r", "--name-only", branch]
    return subprocess.run(words, cwd=remote, capture_output=True, text=True, check=True).stdout.splitlines()


def titles(receiver):
    return [message["blocks"][0]["text"]["text"] for message in receiver.messages]


def test_nightly_breaks_is_repaired_and_publishes(remote, tmp_path: Path):
    nightly = DEPLOY / "github" / "workflows" / "nightly.yaml"
    given = {"vars": {"NOTIFY": "slack", "MODEL": "simulated-8b", "CONFIGS": "nightly.txt"}}
    with receiving() as receiver:
        given["secrets"] = {"SLACK_WEBHOOK_URL": receiver.url}
        broken = Runner(tmp_path / "first", remote, **given, inputs={"engine": "no-such-engine", "results": "branch"})
        jobs = broken.run(nightly)
        assert {name: job.result for name, job in jobs.items()} == {
            "latency": "failure",
            "online": "failure",
            "notify": "success",
        }, jobs["notify"].log
        assert titles(receiver) == ["❌ Nightly benchmark, latency: failed", "❌ Nightly benchmark, online: failed"]
        given["vars"]["SITE"] = "site"
        repaired = Runner(tmp_path / "second", remote, **given, inputs={"engine": "simulator", "python": "3.11"})
        jobs = repaired.run(nightly)
    assert jobs["latency"].result == "success", jobs["latency"].log
    assert jobs["online"].outputs["ok"] in ("true", "false"), jobs["online"].log
    assert "Latency over batch sizes" in jobs["latency"].summary and "| mean |" in jobs["latency"].summary
    assert "| 8 " in jobs["latency"].summary or "batch size 8" in jobs["latency"].summary
    assert "✅ Nightly benchmark, latency: recovered" in titles(receiver)
    files = published(remote)
    assert sum(file.endswith("summary.json") for file in files) == 3 and "notifications.json" in files
    assert "site/index.html" in files
    subprocess.run(["git", "clone", "-q", "-b", "inferometer-results", str(remote), str(tmp_path / "next")], check=True)
    assert {run.state for run in open_store(tmp_path / "next").runs()} == {"complete"}  # also without its records
    assert not [file for file in files if file.endswith((".parquet", ".sqlite", ".log"))]
    assert "sEcReT" not in "".join(job.log for job in jobs.values())
    assert [each.removeprefix("inferometer") for each in installed(tmp_path / "second")] == [
        "[gpu,tokenizers]",
        "[gpu,tokenizers,charts]",
        "[gpu,tokenizers]",
    ]


def test_sweep_by_a_list_of_configs_into_an_artifact(remote, tmp_path: Path):
    inputs = {"benchmark_config_list_file": "weekly.txt", "results": "artifact", "timeout": "30", "label": "gpu"}
    job, telling = (
        Runner(tmp_path / "runner", remote, inputs=inputs).run(DEPLOY / "github" / "workflows" / "sweep.yaml").values()
    )
    assert telling.result == "skipped" and "Sweep" in job.summary, job.log
    store, _, lines = job.artifacts
    assert list(Path(store).glob("runs/*/records.parquet"))
    assert [len(file.read_text().splitlines()) for file in Path(lines).parent.glob("*.csv")] == [2]
    assert not [file for file in published(remote) if file.startswith("runs/")]


def test_sweep_into_postgresql_is_told_of_and_has_a_history(remote, tmp_path: Path, database: str):
    sweep = DEPLOY / "github" / "workflows" / "sweep.yaml"
    inputs = {"benchmark_config_list_file": "weekly.txt", "results": "postgres"}
    records = {"RESULTS": "branch", "INFEROMETER_RECORDS": str(tmp_path / "records")}
    keep_curve(curve_of([]), tmp_path / "records")
    given = {"vars": records | {"NOTIFY": "slack"}, "secrets": {"INFEROMETER_STORE": database}}
    with receiving() as receiver:
        given["secrets"]["SLACK_WEBHOOK_URL"] = receiver.url
        broken = Runner(tmp_path / "0", remote, inputs=inputs | {"benchmark_config_list_file": "no.txt"}, **given)
        assert [job.result for job in broken.run(sweep).values()] == ["failure", "success"]
        assert titles(receiver) == ["❌ Sweep: failed"]
        jobs = [Runner(tmp_path / str(n), remote, inputs=inputs, **given).run(sweep)["sweep"] for n in (1, 2)]
    assert all(job.outputs["ok"] in ("true", "false") for job in jobs), jobs[0].log
    assert all("Sweep" in job.summary for job in jobs)
    store = open_store(database, tmp_path / "records")
    last, first = store.runs()
    assert [run.id for run in history_of(store.load(last.id), store)] == (
        [] if first.verdict == "invalid" else [first.id]
    )
    assert installed(tmp_path / "1")[0] == "inferometer[gpu,tokenizers,postgres]"
    assert not [file for file in published(remote) if file.startswith("runs/")] and not jobs[0].artifacts[:-1]
    assert sorted(run.id for run in (last, first)) == sorted(
        each.name for each in (tmp_path / "records/runs").iterdir()
    )


def installed(runner):
    """What pip was asked for, job by job; every extra of it is one of ours."""
    asked = [line.split()[-1] for line in (runner / "pip.log").read_text().splitlines()]
    known = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = [found.split(",") for each in asked for found in re.findall(r"\[(.+?)\]", each)]
    assert {name for names in extras for name in names} <= {*known}
    return asked


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, "{here}[gpu,tokenizers]"),
        ({"SITE": "site", "INFEROMETER_RECORDS": "s3://b/x"}, "{here}[gpu,tokenizers,charts,s3]"),
        ({"INSTALL": "inferometer==0.1.0"}, "inferometer==0.1.0"),
    ],
)
def test_the_action_installs_what_it_is_part_of(given, asked: str, tmp_path: Path):
    step = next(each for each in action()["runs"]["steps"] if each.get("name") == "Install")
    asker = tmp_path / "python"
    asker.write_text('#!/bin/sh\necho "$@" >> "$PIP_LOG"\n')
    asker.chmod(0o755)
    env = dict.fromkeys(step["env"], "") | {"PATH": f"{tmp_path}:/usr/bin:/bin", "PIP_LOG": str(tmp_path / "pip.log")}
    env |= {"GITHUB_ACTION_PATH": str(DEPLOY / "github"), **given}
    subprocess.run(["bash", "-euo", "pipefail", "-c", step["run"]], env=env, check=True)
    assert installed(tmp_path) == [asked.format(here=f"{DEPLOY}/github/../..")]


def test_a_place_for_results_that_there_is_not_is_refused(tmp_path: Path) -> None:
    step = next(each for each in action()["runs"]["steps"] if each.get("id") == "store")
    env = {"PATH": "/usr/bin:/bin", "RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out")}
    for results, said in (("brnach", "must be branch, artifact or postgres"), ("postgres", "needs the input store")):
        env |= {"RESULTS": results, "BRANCH": "b", "STORE": ""}
        done = subprocess.run(["bash", "-euc", step["run"]], env=env, capture_output=True, text=True)
        assert done.returncode == 2 and said in done.stdout


def action():
    return yaml.safe_load((DEPLOY / "github" / "action.yml").read_text())


def test_publishing_after_another_job_loses_neither(remote, tmp_path: Path):
    """Also where both wrote the same file, and the site is made anew from all runs."""
    scripts = DEPLOY / "github"
    pages = tmp_path / "bin" / "inferometer"
    pages.parent.mkdir()
    pages.write_text('#!/bin/sh\n[ "$1" != site ] || { mkdir -p site; ls runs > site/index.html; }\n')
    pages.chmod(0o755)
    env = {"PATH": f"{pages.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    for name in ("a", "b"):
        subprocess.run(["git", "clone", "-q", str(remote), str(tmp_path / name)], check=True)
        words = ["bash", str(scripts / "fetch.sh"), "results", str(tmp_path / f"store-{name}")]
        if name == "b":
            push(tmp_path, scripts, "a", "seed", env)
        subprocess.run(words, cwd=tmp_path / name, env=env, check=True)
    push(tmp_path, scripts, "a", "one", env)
    push(tmp_path, scripts, "b", "two", env)
    files = published(remote, "results")
    assert {"runs/seed/summary.json", "runs/one/summary.json", "runs/two/summary.json"} <= {*files}
    assert shown(remote, "results:notifications.json") == "two"
    assert shown(remote, "results:site/index.html").split() == ["one", "seed", "two"]


def shown(remote, what):
    return subprocess.run(["git", "show", what], cwd=remote, capture_output=True, text=True, check=True).stdout


def push(place, scripts, name, run, env):
    store = place / f"store-{name}"
    (store / "runs" / run).mkdir(parents=True)
    (store / "runs" / run / "summary.json").write_text("{}")
    (store / "notifications.json").write_text(run)
    subprocess.run(["inferometer", "site"], cwd=store, env=env, check=True)
    subprocess.run(["bash", str(scripts / "publish.sh"), "results", str(store), "false", "site"], env=env, check=True)


def test_the_gitlab_job_runs(tmp_path: Path, monkeypatch):
    said = yaml.safe_load((DEPLOY / "gitlab" / ".gitlab-ci.yml").read_text())["benchmark"]
    (tmp_path / "plan.yaml").write_text(
        "server: {type: simulator, args: {speed: 20}}\nload: {concurrency: 2}\nstop: {requests: 20}\n"
    )
    keep_curve(curve_of([]), tmp_path / "store")
    environment = {"INFEROMETER_STORE": str(tmp_path / "store"), "PLAN": "plan.yaml"}
    environment |= {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    script = "\n".join(["set -e", *said["script"]])
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode in (0, 4), done.stderr
    for report in said["artifacts"]["reports"].values():
        assert (tmp_path / report).stat().st_size
    assert "::" not in done.stdout and (tmp_path / "summary.md").read_text().startswith("## ")


def test_the_dockerfile_copies_what_there_is() -> None:
    """No builder here: it is parsed, and what it names has to exist and to be let through."""
    text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    words = [word for word, _ in lines]
    assert {*words} <= {"ARG", "FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "ENTRYPOINT", "CMD"}
    assert words[:2] == ["ARG", "FROM"] and words.index("USER") > words.index("COPY")
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    for word, rest in lines:
        if word == "COPY" and not rest.startswith("--from"):
            for source in shlex.split(rest)[:-1]:
                assert (DEPLOY.parent / source).exists() and f"!{source}" in ignore, source
        if word == "RUN":
            known = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            assert {extra for found in re.findall(r"\.\[(.+?)\]", rest) for extra in found.split(",")} <= {*known}
            assert subprocess.run(["bash", "-n", "-c", rest]).returncode == 0
