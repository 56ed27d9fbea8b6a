"""Renders our chart and our kustomize folders as far as they go: the few parts of Helm's templates that the chart uses
(values, `if`, `kindIs`, `toYaml`, `nindent`, `quote`, `.Files.Get`), and generated ConfigMaps and JSON patches of
kustomize. A part that is not known here is an error, so that the chart cannot outgrow its test.

The real programs do the same in `make test-kubernetes`, where deploy/install-helm.sh has put them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from kubernetes_stand_in.kinds import Json

TOOLS_ENV = "INFEROMETER_HELM"  # folder with helm and kustomize
_HASHED = re.compile(r"(inferometer-(?:plan|script))-[a-z0-9]{10}\b")  # names of generated ConfigMaps

_TOKEN = re.compile(r"\s*\{\{-\s*(.*?)\s*\}\}|\{\{\s*(.*?)\s*\}\}", re.DOTALL)


def chart(folder: Path, release: str, values: Json | None = None) -> list[Json]:
    """The objects of a chart with its values, changed by these."""
    known = _merged(yaml.safe_load((folder / "values.yaml").read_text()), values or {})
    scope = {"Values": known, "Release": {"Name": release}, "Files": folder}
    texts = [_rendered(path.read_text(), scope) for path in sorted((folder / "templates").glob("*.yaml"))]
    return [one for text in texts for one in yaml.safe_load_all(text) if one]


def _merged(base: Json, more: Json) -> Json:
    return {
        name: _merged(base.get(name, {}), more[name])
        if isinstance(more.get(name), dict) and isinstance(base.get(name, {}), dict)
        else more.get(name, base.get(name))
        for name in {**base, **more}
    }


def _rendered(text: str, scope: Json) -> str:
    """Output is kept where all `if`s around it hold."""
    written, at, holding = "", 0, [True]
    for token in _TOKEN.finditer(text):
        expression = token[1] or token[2]
        if all(holding):
            written += text[at : token.start()]
        at = token.end()
        if expression.startswith("if "):
            holding.append(bool(_value(expression[3:], scope)))
        elif expression == "else":
            holding[-1] = not holding[-1]
        elif expression == "end":
            holding.pop()
        elif all(holding):
            value = _value(expression, scope)
            written += str(value).lower() if isinstance(value, bool) else str(value)
    assert holding == [True], "an `if` without `end`"
    return written + text[at:]


def _value(expression: str, scope: Json) -> Any:
    first, *pipes = [part.strip() for part in expression.split("|")]
    value = _first(first, scope)
    for pipe in pipes:
        name, *words = pipe.split()
        if name == "quote":
            value = json.dumps(str(value))
        elif name == "nindent":
            value = "\n" + "\n".join(" " * int(words[0]) + line if line else line for line in str(value).splitlines())
        else:
            raise ValueError(f"{pipe} is not known here")
    return value


def _first(expression: str, scope: Json) -> Any:
    if expression.startswith("toYaml "):
        return yaml.safe_dump(_first(expression.removeprefix("toYaml "), scope)).rstrip("\n")
    if found := re.fullmatch(r'\.Files\.Get "(.+)"', expression):
        return (scope["Files"] / found[1]).read_text()
    if found := re.fullmatch(r'kindIs "map" (.+)', expression):
        return isinstance(_first(found[1], scope), dict)
    if not re.fullmatch(r"(\.\w+)+", expression):
        raise ValueError(f"{expression} is not known here")
    value: Any = scope
    for name in expression.strip(".").split("."):
        value = value[name]
    return value


def kustomized(folder: Path) -> list[Json]:
    """The objects of a kustomize folder, without the hashes in the names of generated ConfigMaps."""
    written = yaml.safe_load((folder / "kustomization.yaml").read_text())
    objects = [one for name in written["resources"] for one in _resources(folder / name)]
    for generated in written.get("configMapGenerator", []):
        data = {name: (folder / name).read_text() for name in generated["files"]}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
    for patch in written.get("patches", []):
        found = [one for one in objects if one["kind"] == patch["target"]["kind"]]
        for change in yaml.safe_load(patch["patch"]):
            _change(found[0], change)
    return objects


def _resources(path: Path) -> Iterator[Json]:
    yield from kustomized(path) if path.is_dir() else yaml.safe_load_all(path.read_text())


def _change(one: Any, change: Json) -> None:
    *path, last = change["path"].strip("/").split("/")
    for name in path:
        one = one[int(name) if isinstance(one, list) else name]
    key: Any = int(last) if isinstance(one, list) else last
    if change["op"] == "remove":
        del one[key]
    elif change["op"] == "replace":
        one[key] = change["value"]
    else:
        raise ValueError(f"{change['op']} is not known here")


# -- by the real programs --------------------------------------------------------------------------------------------


def program(name: str) -> str | None:
    """Helm or kustomize, if it is installed."""
    return shutil.which(name, path=os.environ.get(TOOLS_ENV, os.environ.get("PATH", "")))


def chart_by_helm(helm: str, folder: Path, release: str, values: Json | None = None) -> list[Json]:
    """Helm sorts objects by their kinds."""
    words = [helm, "template", release, str(folder), "--values", "-"]
    return _documents(subprocess.run(words, input=yaml.safe_dump(values or {}), capture_output=True, text=True))


def built(kustomize: str, folder: Path) -> list[Json]:
    """Without the hashes in the names of generated ConfigMaps."""
    return _documents(subprocess.run([kustomize, "build", str(folder)], capture_output=True, text=True))


def _documents(ended: subprocess.CompletedProcess[str]) -> list[Json]:
    assert ended.returncode == 0, ended.stderr
    return [one for one in yaml.safe_load_all(_HASHED.sub(r"\1", ended.stdout)) if one]
