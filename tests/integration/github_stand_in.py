"""A stand-in for GitHub's runner: reads a workflow and our composite action, evaluates their expressions, and runs
every `run:` step in bash, in a fresh clone, with the files and variables that GitHub gives a step."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from inferometer.workload.cache import cache_folder

ACTIONS = {"actions/checkout", "actions/upload-artifact", "actions/cache", "actions/setup-python"}
PIP = """#!/bin/sh
if [ "$1 $2 $3" = "-m pip install" ]; then echo "$@" >> "$PIP_LOG"; exit 0; fi
exec {python} "$@"
"""


class Nothing(str):
    """What a context does not have: an empty string, and so is all that is asked of it."""

    def __getattr__(self, name: str) -> "Nothing":
        return self


class Known(dict[str, Any]):
    """A context."""

    def __getattr__(self, name: str) -> Any:
        found = self.get(name)
        return Known(found) if isinstance(found, dict) else Nothing() if found is None else found


@dataclass
class Step:
    """What became of a step."""

    name: str
    code: int
    output: str


@dataclass
class Job:
    result: str = "success"
    outputs: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    summary: str = ""
    artifacts: list[str] = field(default_factory=list)

    @property
    def log(self) -> str:
        return "".join(step.output for step in self.steps)


def evaluated(text: Any, contexts: dict[str, Any]) -> Any:
    """A value with its `${{ }}`; one that is nothing else keeps its type."""
    if isinstance(text, dict):
        return {name: evaluated(each, contexts) for name, each in text.items()}
    if not isinstance(text, str):
        return text
    whole = re.fullmatch(r"\$\{\{(.*)\}\}", text.strip(), re.DOTALL)
    if whole and "${{" not in whole[1]:
        return expression(whole[1], contexts)
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(expression(found[1], contexts)), text)


def expression(text: str, contexts: dict[str, Any]) -> Any:
    python = text.strip().replace("||", " or ").replace("&&", " and ")
    python = re.sub(r"!(?!=)", " not ", python)
    return eval(python, {"__builtins__": {}}, contexts)


class Runner:
    def __init__(self, folder: Path, remote: Path, **given: dict[str, str]) -> None:
        self.folder, self.remote, self.given = folder, remote, given
        self.jobs: dict[str, Job] = {}
        self.number = 0
        (folder / "bin").mkdir(parents=True)
        python = folder / "bin" / "python"
        python.write_text(PIP.format(python=sys.executable))
        python.chmod(0o755)

    def run(self, workflow: Path) -> dict[str, Job]:
        said = yaml.safe_load(workflow.read_text())
        for name, job in said["jobs"].items():
            self.jobs[name] = self._job(name, job, said)
        return self.jobs

    def _contexts(self, **more: Any) -> dict[str, Any]:
        needs = Known({name: {"result": job.result, "outputs": job.outputs} for name, job in self.jobs.items()})
        given = {name: Known(self.given.get(name, {})) for name in ("inputs", "vars", "secrets")}
        failed = any(job.result == "failure" for job in self.jobs.values())
        functions = {"always": lambda: True, "cancelled": lambda: False, "failure": lambda: failed, "fromJSON": float}
        return {
            **given,
            "needs": needs,
            "github": Known(run_number=1, run_attempt=1),
            "runner": Known(),
            **functions,
            **more,
        }

    def _job(self, name: str, said: dict[str, Any], workflow: dict[str, Any]) -> Job:
        contexts = self._contexts()
        if not _wanted(said.get("if"), contexts, self._all_well(said)):
            return Job("skipped")
        self.number += 1
        place = self.folder / f"job-{self.number}"
        workspace = place / "workspace"
        (place / "temp").mkdir(parents=True)
        environment = self._environment(name, workflow, place)
        for block in (workflow.get("env", {}), said.get("env", {})):
            environment |= {key: str(value) for key, value in evaluated(block, contexts).items()}
        job, steps = Job(), Known()
        contexts |= {"steps": steps, "runner": Known(temp=str(place / "temp"), os="Linux"), "github": Known(job=name)}
        for step in said["steps"]:
            self._step(step, job, contexts, environment, workspace, workspace)
        job.outputs = {key: str(value) for key, value in evaluated(said.get("outputs", {}), contexts).items()}
        return job

    def _all_well(self, said: dict[str, Any]) -> bool:
        needs = said.get("needs", [])
        return all(self.jobs[each].result == "success" for each in ([needs] if isinstance(needs, str) else needs))

    def _environment(self, job: str, workflow: dict[str, Any], place: Path) -> dict[str, str]:
        kept = {
            name: os.environ[name]
            for name in ("LANG", "TMPDIR", "XDG_STATE_HOME", "INFEROMETER_LOCKS")
            if name in os.environ
        }
        (place / "home").mkdir()
        return kept | {
            "PATH": f"{self.folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(place / "home"),
            "INFEROMETER_CACHE": str(cache_folder()),  # not of an empty home: Vega's script takes seconds
            "PIP_LOG": str(self.folder / "pip.log"),
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKFLOW": workflow["name"],
            "GITHUB_JOB": job,
            "GITHUB_SERVER_URL": "https://github.example",
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_RUN_ID": "7",
            "RUNNER_TEMP": str(place / "temp"),
        }

    def _step(
        self, step: dict[str, Any], job: Job, contexts: dict[str, Any], env: dict[str, str], at: Path, action: Path
    ) -> None:
        if not _wanted(step.get("if"), contexts, job.result == "success"):
            return
        uses = str(step.get("uses", ""))
        if uses.startswith("./"):
            self._composite(at / uses, step, job, contexts, env, at)
        elif uses.startswith("actions/checkout@"):
            subprocess.run(["git", "clone", "--quiet", str(self.remote), str(at)], check=True)
        elif uses:
            assert uses.partition("@")[0] in ACTIONS and re.fullmatch(r"v\d+", uses.partition("@")[2]), uses
            if "upload-artifact" in uses:
                job.artifacts += str(evaluated(step["with"]["path"], contexts)).split()
        else:
            self._bash(step, job, contexts, env, at, action)

    def _composite(
        self, folder: Path, step: dict[str, Any], job: Job, contexts: dict[str, Any], env: dict[str, str], at: Path
    ) -> None:
        said = yaml.safe_load((folder / "action.yml").read_text())
        given = evaluated(step.get("with", {}), contexts)
        assert given.keys() <= said["inputs"].keys()
        inputs = {
            name: given.get(name) if given.get(name) not in (None, "") else each.get("default", "")
            for name, each in said["inputs"].items()
        }
        inside = contexts | {"inputs": Known(inputs), "steps": Known()}
        for each in said["runs"]["steps"]:
            self._step(each, job, inside, env, at, folder)
        outputs = {name: evaluated(each["value"], inside) for name, each in said["outputs"].items()}
        if step.get("id"):
            contexts["steps"][step["id"]] = {"outputs": outputs}

    def _bash(
        self, step: dict[str, Any], job: Job, contexts: dict[str, Any], env: dict[str, str], at: Path, action: Path
    ) -> None:
        temp = Path(env["RUNNER_TEMP"])
        files = {name: temp / f"{name.lower()}-{len(job.steps)}" for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.touch()
        own = {name: str(value) for name, value in evaluated(step.get("env", {}), contexts).items()}
        whole = env | own | {name: str(file) for name, file in files.items()} | {"GITHUB_ACTION_PATH": str(action)}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", evaluated(step["run"], contexts)]
        done = subprocess.run(command, cwd=at, env=whole, capture_output=True, text=True, timeout=300)
        job.steps.append(Step(step.get("name", ""), done.returncode, done.stdout + done.stderr))
        job.summary += files["GITHUB_STEP_SUMMARY"].read_text()
        said = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        contexts["steps"][step.get("id", "")] = {"outputs": said}
        if done.returncode:
            job.result = "failure"


def _wanted(condition: Any, contexts: dict[str, Any], well: bool) -> bool:
    """Without a status function a step or job is done only where all before it went well."""
    if condition is None:
        return well
    said = str(condition)
    if not re.search(r"(always|cancelled|failure)\(\)", said) and not well:
        return False
    return bool(evaluated(said, contexts))
