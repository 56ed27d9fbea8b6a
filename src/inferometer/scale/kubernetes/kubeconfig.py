"""Which cluster, and who we are there: as kubectl decides it, from `--kubeconfig`, $KUBECONFIG (several files), the
usual file, or the service account of the pod that we run in."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from inferometer.errors import PlanError, TargetError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

USUAL_FILE = "~/.kube/config"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PLUGIN_S = 60.0  # for a program that gives credentials
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")  # keys that name a file


@dataclass(frozen=True, slots=True)
class Access:
    """How a cluster is reached. `kubectl` has the words that make kubectl use the same one."""

    config: "SingleConfig"
    proxy: str | None
    kubectl: tuple[str, ...]

    @property
    def server(self) -> str:
        return self.config.cluster.server


def access_to_cluster(
    kubeconfig: str | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Access:
    """A file that was named goes before the pod's service account, as with kubectl; the usual file is used if it
    exists."""
    named = kubeconfig or environ.get("KUBECONFIG")
    files = [Path(name).expanduser() for name in (named or USUAL_FILE).split(os.pathsep) if name]
    present = [path for path in files if path.is_file()]
    if kubeconfig and not present:
        raise PlanError(f"--kubeconfig: there is no file {kubeconfig}")
    if not present:
        if context is None and "KUBERNETES_SERVICE_HOST" in environ:
            return _in_cluster()
        text = f"there is no Kubernetes cluster to talk to: no file {', '.join(map(str, files))}, and this is no pod"
        raise TargetError(text, "name a file: --kubeconfig FILE or export KUBECONFIG=FILE; kubectl config view")
    words = ("--kubeconfig", kubeconfig) if kubeconfig else ()
    return _from_files(present, context, (*words, *(("--context", context) if context else ())))


def _in_cluster() -> Access:
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError

    try:
        config = KubeConfig.from_service_account(SERVICE_ACCOUNT).get()
    except ConfigError as error:
        raise TargetError(f"this pod has no token of its service account: {error}") from error
    assert config is not None
    return Access(config, None, ())


def _from_files(files: list[Path], context: str | None, words: tuple[str, ...]) -> Access:
    from lightkube.config.kubeconfig import SingleConfig
    from lightkube.config.models import Cluster, Context, User

    merged = _merged(files)
    where = os.pathsep.join(map(str, files))
    name = context or merged["current-context"]
    if not name:
        raise PlanError(f"{where}: no current-context", "choose one: --context NAME; kubectl config get-contexts")
    chosen = _entry(merged, "context", name, where)
    cluster = _entry(merged, "cluster", chosen.get("cluster", ""), where)
    user = _entry(merged, "user", chosen["user"], where) if chosen.get("user") else {}
    if cluster.get("tls-server-name"):
        raise PlanError(f"{where}: tls-server-name is not supported", "give the server by the name in its certificate")
    known_user = {key: value for key, value in _with_credentials(user, cluster).items() if key in _USER_KEYS}
    config = SingleConfig(
        context_name=name,
        context=Context(cluster=str(chosen["cluster"]), user=chosen.get("user"), namespace=chosen.get("namespace")),
        cluster=_converted({key: value for key, value in cluster.items() if key != "extensions"}, Cluster, where),
        user=_converted(known_user, User, where),
        fname=files[0],
    )
    return Access(config, cluster.get("proxy-url"), words)


_USER_KEYS = {"exec", "username", "password", "token", "tokenFile", "auth-provider", "client-certificate"} | {
    "client-certificate-data",
    "client-key",
    "client-key-data",
}


def _converted(value: Any, kind: type[Any], where: str) -> Any:
    import msgspec

    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: {error}") from error


def _merged(files: list[Path]) -> dict[str, Any]:
    """The first file that has a name decides, as with kubectl; paths are relative to the file that has them."""
    merged: dict[str, Any] = {"current-context": None, "context": {}, "cluster": {}, "user": {}}
    for path in files:
        try:
            content = yaml.safe_load(path.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise PlanError(f"{path}: this is no kubeconfig: {error}") from error
        if not isinstance(content, dict):
            raise PlanError(f"{path}: this is no kubeconfig, got {type(content).__name__}")
        merged["current-context"] = merged["current-context"] or content.get("current-context")
        for kind in ("context", "cluster", "user"):
            for entry in content.get(f"{kind}s") or ():
                merged[kind].setdefault(entry["name"], _absolute(entry.get(kind) or {}, path))
    return merged


def _absolute(entry: dict[str, Any], file: Path) -> dict[str, Any]:
    paths: dict[str, Any] = {key: str(file.parent.absolute() / entry[key]) for key in _FILES if entry.get(key)}
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        paths["exec"] = plugin | {"command": str(file.parent.absolute() / plugin["command"])}
    return entry | paths


def _entry(merged: dict[str, Any], kind: str, name: str, where: str) -> dict[str, Any]:
    if name not in merged[kind]:
        known = ", ".join(merged[kind]) or "none"
        raise PlanError(f"{where}: no {kind} {name!r}, there are: {known}", "kubectl config get-contexts")
    entry: dict[str, Any] = merged[kind][name]
    return entry


# -- programs that give credentials ----------------------------------------------------------------------------------


def _with_credentials(user: dict[str, Any], cluster: dict[str, Any]) -> dict[str, Any]:
    """lightkube runs such a program itself when it needs a token, but knows neither its version v1, nor the description
    of the cluster that it may want, nor certificates as its answer."""
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        return user
    version = str(plugin.get("apiVersion", ""))
    environment = [*(plugin.get("env") or ()), {"name": "KUBERNETES_EXEC_INFO", "value": _information(plugin, cluster)}]
    changed = {key: plugin[key] for key in ("command", "args", "installHint") if plugin.get(key) is not None}
    answer = _answer_of(plugin, {entry["name"]: entry["value"] for entry in environment})
    if not answer.get("token") and answer.get("clientCertificateData"):
        return {
            "client-certificate-data": base64.b64encode(answer["clientCertificateData"].encode()).decode(),
            "client-key-data": base64.b64encode(str(answer.get("clientKeyData", "")).encode()).decode(),
        }
    spoken = version if version.endswith(("v1alpha1", "v1beta1")) else "client.authentication.k8s.io/v1beta1"
    return {"exec": changed | {"apiVersion": spoken, "env": environment}}


def _information(plugin: dict[str, Any], cluster: dict[str, Any]) -> str:
    described = {key: cluster[key] for key in ("server", "certificate-authority-data") if cluster.get(key)}
    spec = {"interactive": False} | ({"cluster": described} if plugin.get("provideClusterInfo") else {})
    return json.dumps({"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec})


def _answer_of(plugin: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    command = [str(plugin.get("command", "")), *map(str, plugin.get("args") or ())]
    where = f"{command[0]}, which gives the credentials of the cluster,"
    hint = str(plugin.get("installHint") or "").strip() or f"run it by hand: {' '.join(command)}"
    try:
        ended = subprocess.run(command, env=os.environ | environment, capture_output=True, timeout=PLUGIN_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TargetError(f"{where} could not be run: {error}", hint) from error
    if ended.returncode:
        last = next(_last_lines(ended.stderr), "")
        raise TargetError(f"{where} ended with exit code {ended.returncode}: {last}", hint)
    try:
        status: dict[str, Any] = json.loads(ended.stdout)["status"]
    except (ValueError, KeyError, TypeError) as error:
        raise TargetError(f"{where} printed no credentials", hint) from error
    return status


def _last_lines(text: bytes) -> Iterator[str]:
    yield from (line.strip() for line in reversed(text.decode(errors="replace").splitlines()) if line.strip())
