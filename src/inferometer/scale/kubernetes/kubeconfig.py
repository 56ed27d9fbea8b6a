"""Selects the cluster and credentials like kubectl: from `--kubeconfig`, $KUBECONFIG (several files), the default file,
or the service account of the pod in which we run."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import RefusedError
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import PlanError, TargetError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

USUAL_FILE = "~/.kube/config"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PLUGIN_S = 60.0  # timeout of a credential plugin
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")  # keys that name a file


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a cluster. `kubectl` has the kubectl options that select the same cluster."""

    config: "SingleConfig"
    proxy: str | None
    kubectl: tuple[str, ...]

    @property
    def server(self) -> str:
        return self.config.cluster.server


def access_to_cluster(
    kubeconfig: str | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> Access:
    """A named file has priority over the pod's service account, as in kubectl; the default file is used if it
    exists."""
    named = kubeconfig or environ.get("KUBECONFIG")
    files = [Path(name).expanduser() for name in (named or USUAL_FILE).split(os.pathsep) if name]
    present = [path for path in files if path.is_file()]
    if kubeconfig and not present:
        raise PlanError(f"--kubeconfig: there is no file {kubeconfig}")
    if not present:
        if context is None and "KUBERNETES_SERVICE_HOST" in environ:
            return _in_cluster()
        text = f"there is no Kubernetes cluster to talk to: no file {', '.join(map(str, files))}, and this is not a pod"
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
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise PlanError(f"{where}: {error}") from error


def _merged(files: list[Path]) -> dict[str, Any]:
    """The merged files: the first file with a name wins, as in kubectl; paths are relative to their file."""
    merged: dict[str, Any] = {"current-context": None, "context": {}, "cluster": {}, "user": {}}
    for path in files:
        content = _content(path)
        merged["current-context"] = merged["current-context"] or content.get("current-context")
        for kind in ("context", "cluster", "user"):
            for entry in content.get(f"{kind}s") or ():
                merged[kind].setdefault(entry["name"], _absolute(entry.get(kind) or {}, path))
    return merged


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Plugin(msgspec.Struct):
    command: str
    args: list[str] | None = None
    env: list[_Variable] | None = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str | None = None
    client_key: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    exec: _Plugin | None = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str
    certificate_authority: str | None = None
    proxy_url: str | None = None


class _Context(msgspec.Struct):
    cluster: str
    user: str | None = None
    namespace: str | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    """The parts of a kubeconfig that we read, with type checks of all entries, also of unselected ones."""

    current_context: str | None = None
    users: list[_NamedUser] | None = None
    clusters: list[_NamedCluster] | None = None
    contexts: list[_NamedContext] | None = None


def _content(path: Path) -> dict[str, Any]:
    try:
        content, _ = yaml_value(text_in(file_bytes(path)))
        msgspec.convert({} if content is None else content, _Kubeconfig)
    except OSError as error:
        raise PlanError(f"{path}: could not be read: {error.strerror}") from error
    except RefusedError as error:
        raise PlanError(f"{path}{error.position}: not a kubeconfig: {error.text}", error.hint) from error
    except msgspec.ValidationError as error:
        raise PlanError(f"{path}: not a kubeconfig: {error}", "kubectl config view") from error
    return content or {}


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


# -- credential plugins ----------------------------------------------------------------------------------------------


def _with_credentials(user: dict[str, Any], cluster: dict[str, Any]) -> dict[str, Any]:
    """Run the credential plugin. lightkube runs plugins for tokens, but supports neither version v1, nor cluster
    information for the plugin, nor certificates as its result."""
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        return user
    version = str(plugin.get("apiVersion", ""))
    environment = [*(plugin.get("env") or ()), {"name": "KUBERNETES_EXEC_INFO", "value": _information(plugin, cluster)}]
    changed = {key: plugin[key] for key in ("command", "args", "installHint") if plugin.get(key) is not None}
    answer = _answer_of(plugin, {entry["name"]: entry["value"] for entry in environment})
    if not answer.token and answer.client_certificate_data:
        return {
            "client-certificate-data": base64.b64encode(answer.client_certificate_data.encode()).decode(),
            "client-key-data": base64.b64encode((answer.client_key_data or "").encode()).decode(),
        }
    spoken = version if version.endswith(("v1alpha1", "v1beta1")) else "client.authentication.k8s.io/v1beta1"
    return {"exec": changed | {"apiVersion": spoken, "env": environment}}


def _information(plugin: dict[str, Any], cluster: dict[str, Any]) -> str:
    described = {key: cluster[key] for key in ("server", "certificate-authority-data") if cluster.get(key)}
    spec = {"interactive": False} | ({"cluster": described} if plugin.get("provideClusterInfo") else {})
    return json.dumps({"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec})


class _Credentials(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _Answer(msgspec.Struct):
    status: _Credentials


def _answer_of(plugin: dict[str, Any], environment: Mapping[str, str]) -> _Credentials:
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
        return msgspec.json.decode(ended.stdout, type=_Answer).status
    except msgspec.DecodeError as error:
        raise TargetError(f"{where} printed no credentials", hint) from error


def _last_lines(text: bytes) -> Iterator[str]:
    yield from (line.strip() for line in reversed(text.decode(errors="replace").splitlines()) if line.strip())
