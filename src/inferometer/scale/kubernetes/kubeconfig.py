"""Selects the cluster and credentials like kubectl: from `--kubeconfig`, $KUBECONFIG (several files), the default file,
or the service account of the pod in which we run."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, cast

import msgspec

from inferometer.documents.document import JsonValue, settings_of
from inferometer.documents.files import file_bytes, text_in
from inferometer.documents.json_text import RefusedError
from inferometer.documents.yaml_text import yaml_value
from inferometer.errors import PlanError, TargetError

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import SingleConfig

USUAL_FILE = "~/.kube/config"
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
FileKey = Literal["client-certificate", "client-key", "tokenFile"]
_FILES: tuple[FileKey, ...] = ("client-certificate", "client-key", "tokenFile")  # keys that name a file
EntryT = TypeVar("EntryT")
PLUGIN_S = 60.0  # timeout of a credential plugin


class Plugin(TypedDict, total=False):
    apiVersion: str
    command: str
    args: list[str] | None
    env: list[dict[str, str]] | None
    installHint: str | None
    provideClusterInfo: bool | None


UserEntry = TypedDict(
    "UserEntry",
    {
        "client-certificate": str | None,
        "client-certificate-data": str | None,
        "client-key": str | None,
        "client-key-data": str | None,
        "tokenFile": str | None,
        "exec": Plugin | None,
    },
    total=False,
)
ClusterEntry = TypedDict(
    "ClusterEntry",
    {
        "server": str,
        "tls-server-name": str | None,
        "proxy-url": str | None,
        "certificate-authority": str | None,
        "certificate-authority-data": str | None,
    },
    total=False,
)


class ContextEntry(TypedDict, total=False):
    cluster: str
    user: str | None
    namespace: str | None


class NamedUser(TypedDict, total=False):
    name: str
    user: UserEntry | None


class NamedCluster(TypedDict, total=False):
    name: str
    cluster: ClusterEntry | None


class NamedContext(TypedDict, total=False):
    name: str
    context: ContextEntry | None


KubeconfigContent = TypedDict(
    "KubeconfigContent",
    {
        "current-context": str | None,
        "contexts": list[NamedContext] | None,
        "clusters": list[NamedCluster] | None,
        "users": list[NamedUser] | None,
    },
    total=False,
)


@dataclass(slots=True)
class MergedFiles:
    """The entries of all kubeconfig files, by name."""

    current: str | None = None
    contexts: dict[str, ContextEntry] = field(default_factory=dict)
    clusters: dict[str, ClusterEntry] = field(default_factory=dict)
    users: dict[str, UserEntry] = field(default_factory=dict)


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
        raise TargetError(text, "name a kubeconfig file: --kubeconfig FILE, or export KUBECONFIG=FILE")
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
    name = context or merged.current
    if not name:
        raise PlanError(f"{where}: no current-context", "choose one: --context NAME; kubectl config get-contexts")
    chosen = _entry(merged.contexts, "context", name, where)
    cluster = _entry(merged.clusters, "cluster", chosen.get("cluster", ""), where)
    user = _entry(merged.users, "user", named, where) if (named := chosen.get("user")) else UserEntry()
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


def _merged(files: list[Path]) -> MergedFiles:
    """The merged files: the first file with a name wins, as in kubectl; paths are relative to their file."""
    merged = MergedFiles()
    for path in files:
        content = _content(path)
        merged.current = merged.current or content.get("current-context")
        for context in content.get("contexts") or ():
            merged.contexts.setdefault(context["name"], context.get("context") or {})
        for cluster in content.get("clusters") or ():
            merged.clusters.setdefault(cluster["name"], _absolute_cluster(cluster.get("cluster") or {}, path))
        for user in content.get("users") or ():
            merged.users.setdefault(user["name"], _absolute_user(user.get("user") or {}, path))
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


def _content(path: Path) -> KubeconfigContent:
    try:
        content, _ = yaml_value(text_in(file_bytes(path)))
        msgspec.convert({} if content is None else content, _Kubeconfig)
    except OSError as error:
        raise PlanError(f"{path}: could not be read: {error.strerror}") from error
    except RefusedError as error:
        raise PlanError(f"{path}{error.position}: not a kubeconfig: {error.text}", error.hint) from error
    except msgspec.ValidationError as error:
        raise PlanError(f"{path}: not a kubeconfig: {error}", "kubectl config view") from error
    return cast(KubeconfigContent, content or {})


def _absolute_cluster(cluster: ClusterEntry, file: Path) -> ClusterEntry:
    if authority := cluster.get("certificate-authority"):
        return {**cluster, "certificate-authority": _absolute(authority, file)}
    return cluster


def _absolute_user(user: UserEntry, file: Path) -> UserEntry:
    absolute = user.copy()
    for key in _FILES:
        if path := user.get(key):
            absolute[key] = _absolute(path, file)
    plugin = user.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        absolute["exec"] = {**plugin, "command": _absolute(plugin["command"], file)}
    return absolute


def _absolute(path: str, file: Path) -> str:
    return str(file.parent.absolute() / path)


def _entry(entries: Mapping[str, EntryT], kind: str, name: str, where: str) -> EntryT:
    if name not in entries:
        known = ", ".join(entries) or "none"
        raise PlanError(f"{where}: no {kind} {name!r}, there are: {known}", "kubectl config get-contexts")
    return entries[name]


# -- credential plugins ----------------------------------------------------------------------------------------------


def _with_credentials(user: UserEntry, cluster: ClusterEntry) -> UserEntry:
    """Run the credential plugin. lightkube runs plugins for tokens, but supports neither version v1, nor cluster
    information for the plugin, nor certificates as its result."""
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        return user
    version = str(plugin.get("apiVersion", ""))
    environment = [*(plugin.get("env") or ()), {"name": "KUBERNETES_EXEC_INFO", "value": _information(plugin, cluster)}]
    answer = _answer_of(plugin, {entry["name"]: entry["value"] for entry in environment})
    if not answer.token and answer.client_certificate_data:
        return {
            "client-certificate-data": base64.b64encode(answer.client_certificate_data.encode()).decode(),
            "client-key-data": base64.b64encode((answer.client_key_data or "").encode()).decode(),
        }
    spoken = version if version.endswith(("v1alpha1", "v1beta1")) else "client.authentication.k8s.io/v1beta1"
    changed: Plugin = {"apiVersion": spoken, "env": environment, "command": plugin["command"]}
    if (args := plugin.get("args")) is not None:
        changed["args"] = args
    if (hint := plugin.get("installHint")) is not None:
        changed["installHint"] = hint
    return {"exec": changed}


def _information(plugin: Plugin, cluster: ClusterEntry) -> str:
    facts = {name: settings_of(cluster).get(name) for name in ("server", "certificate-authority-data")}
    described: dict[str, JsonValue] = {name: fact for name, fact in facts.items() if fact}
    spec: dict[str, JsonValue] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = described
    return json.dumps({"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": spec})


class _Credentials(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None


class _Answer(msgspec.Struct):
    status: _Credentials


def _answer_of(plugin: Plugin, environment: Mapping[str, str]) -> _Credentials:
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
