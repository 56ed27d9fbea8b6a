"""Selecting the cluster: files, contexts, proxies and credential plugins, as in kubectl."""

import base64
import json
import shutil
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferometer.cli import execute
from inferometer.errors import PlanError, TargetError
from inferometer.scale.kubernetes import kubeconfig
from inferometer.scale.kubernetes.client import open_cluster
from inferometer.scale.kubernetes.kubeconfig import access_to_cluster


def config(path: Path, user: dict[str, Any], name: str = "one", **cluster: Any) -> Path:
    content = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"space-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", **cluster}}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_current_context_or_another(tmp_path: Path) -> None:
    first, second = config(tmp_path / "a", {"token": "t"}), config(tmp_path / "b", {"token": "t"}, "two")
    environ = {"KUBECONFIG": f"{first}:{second}:{tmp_path / 'missing'}"}
    assert access_to_cluster(environ=environ).server == "https://one:6443"
    other = access_to_cluster(context="two", environ=environ)
    assert (other.server, other.config.namespace) == ("https://two:6443", "space-two")
    assert other.kubectl == ("--context", "two")
    with pytest.raises(PlanError, match=r"no context 'three', there are: one, two"):
        access_to_cluster(context="three", environ=environ)


def test_proxy_certificates_and_relative_paths(tmp_path: Path) -> None:
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    file = config(tmp_path / "a", user, **{"proxy-url": "http://proxy:3128", "certificate-authority": "ca.crt"})
    access = access_to_cluster(str(file))
    assert access.proxy == "http://proxy:3128"
    assert access.config.cluster.certificate_auth == str(tmp_path / "ca.crt")
    assert access.config.user is not None and access.config.user.client_cert == str(tmp_path / "me.crt")


def program(path: Path, answer: dict[str, Any] | None) -> dict[str, Any]:
    printed = json.dumps({"kind": "ExecCredential", "status": answer}) if answer is not None else ""
    path.write_text(f"#!/bin/sh\necho \"$KUBERNETES_EXEC_INFO\" > {path}.info\nprintf '%s' '{printed}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{path.name}", "args": ["x"]}}


def test_programs_that_give_credentials(tmp_path: Path) -> None:
    user = program(tmp_path / "login", {"token": "secret"})
    access = access_to_cluster(str(config(tmp_path / "a", user)))
    assert access.config.user is not None and access.config.user.exec is not None
    assert access.config.user.exec.command == str(tmp_path / "login")
    told = json.loads((tmp_path / "login.info").read_text())
    assert told["apiVersion"] == "client.authentication.k8s.io/v1" and told["spec"] == {"interactive": False}
    with_certificate = program(tmp_path / "card", {"clientCertificateData": "CERT", "clientKeyData": "KEY"})
    access = access_to_cluster(str(config(tmp_path / "b", with_certificate)))
    assert access.config.user is not None and access.config.user.client_cert_data == "Q0VSVA=="
    with pytest.raises(TargetError, match="printed no credentials"):
        access_to_cluster(str(config(tmp_path / "c", program(tmp_path / "silent", None))))
    missing = {"exec": {"apiVersion": "v1", "command": "no-such-program", "installHint": "install it"}}
    with pytest.raises(TargetError, match="could not be run") as error:
        access_to_cluster(str(config(tmp_path / "d", missing)))
    assert error.value.hint == "install it"


def test_no_cluster_at_all(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no Kubernetes cluster to talk to"):
        access_to_cluster(environ={"KUBECONFIG": str(tmp_path / "none")})
    with pytest.raises(PlanError, match="there is no file"):
        access_to_cluster(str(tmp_path / "none"))


def test_a_server_that_does_not_answer_is_said_with_a_command(tmp_path: Path) -> None:
    file = config(tmp_path / "a", {"token": "t"})
    file.write_text(file.read_text().replace("https://one:6443", "http://127.0.0.1:1"))
    with open_cluster(str(file), retry_s=0.0) as cluster, pytest.raises(TargetError, match="does not answer") as error:
        cluster.answer("/version")
    assert error.value.hint == f"kubectl --kubeconfig {file} cluster-info"


def test_the_command_line_says_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["k8s", "run", "--list-endpoints", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "there is no file" in capsys.readouterr().err
    store = ["--store", str(tmp_path / "store")]
    assert execute(["run", "--url", "http://127.0.0.1:1", "--on", "kubernetes", "--requests", "1", *store]) == 3
    assert "the driver contacts the target too" in capsys.readouterr().err


# -- over TLS, with what a server really sees ------------------------------------------------------------------------


@dataclass
class Secured:
    """An HTTPS server that takes only clients with its certificate or a token, and a proxy in front of it."""

    port: int
    proxy: int
    certificate: Path
    key: Path
    seen: list[tuple[str | None, str | None]] = field(default_factory=list)  # who by certificate, by token
    passed_on: list[str] = field(default_factory=list)

    def config(self, path: Path, user: dict[str, Any], **cluster: Any) -> Path:
        file = config(path, user, **{"certificate-authority": str(self.certificate), **cluster})
        file.write_text(file.read_text().replace("https://one:6443", f"https://127.0.0.1:{self.port}"))
        return file


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[int]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that signs itself, of the server and of the client alike."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    folder = tmp_path_factory.mktemp("pair")
    kind = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=jane", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "crt.pem"]
    subprocess.run([*kind, *names], cwd=folder, check=True, capture_output=True)
    return folder / "crt.pem", folder / "key.pem"


@pytest.fixture
def secured(pair: tuple[Path, Path]) -> Iterator[Secured]:
    made = Secured(0, 0, *pair)

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            certificate = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
            subject: Any = certificate.get("subject", ()) if certificate else ()
            name = next((value for part in subject for _, value in part), None)
            made.seen.append((name, self.headers.get("authorization")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    class Tunnel(Api):
        def do_CONNECT(self) -> None:
            made.passed_on.append(self.path)
            with socket.create_connection(("127.0.0.1", made.port)) as other:
                self.send_response(200)
                self.end_headers()
                back = threading.Thread(target=_copied, args=(other, self.connection), daemon=True)
                back.start()
                _copied(self.connection, other)
                back.join(5)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    context.load_verify_locations(pair[0])
    context.verify_mode = ssl.CERT_OPTIONAL
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    api.socket = context.wrap_socket(api.socket, server_side=True)
    with serving(api) as made.port, serving(ThreadingHTTPServer(("127.0.0.1", 0), Tunnel)) as made.proxy:
        yield made


def _copied(source: socket.socket, target: socket.socket) -> None:
    try:
        while part := source.recv(65536):
            target.sendall(part)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_the_server_sees_certificates_and_tokens_also_through_a_proxy(secured: Secured, tmp_path: Path) -> None:
    certificate, key = secured.certificate.read_text(), secured.key.read_text()
    inline = {
        f"client-{name}-data": base64.b64encode(text.encode()).decode()
        for name, text in (("certificate", certificate), ("key", key))
    }
    answer = tmp_path / "answer.json"
    credentials = {"clientCertificateData": certificate, "clientKeyData": key}
    answer.write_text(json.dumps({"kind": "ExecCredential", "status": credentials}))
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "cat", "args": [str(answer)]}
    proxy = {"proxy-url": f"http://127.0.0.1:{secured.proxy}"}
    users: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"client-certificate": str(secured.certificate), "client-key": str(secured.key)}, {}),
        (inline, {}),
        ({"exec": plugin}, {}),
        ({"token": "t"}, proxy),
        (inline, proxy),
    ]
    for number, (user, cluster) in enumerate(users):
        with open_cluster(str(secured.config(tmp_path / f"{number}", user, **cluster)), retry_s=0.0) as opened:
            assert opened.answer("/version") == b"{}"
    assert secured.seen == [("jane", None)] * 3 + [(None, "Bearer t"), ("jane", None)]
    assert secured.passed_on == [f"127.0.0.1:{secured.port}"] * 2


def test_in_a_pod_its_service_account_is_used(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(secured.certificate, tmp_path / "ca.crt")
    (tmp_path / "token").write_text("of-the-pod")
    (tmp_path / "namespace").write_text("bench")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(secured.port))
    with open_cluster(retry_s=0.0) as cluster:
        assert cluster.answer("/version") == b"{}"
        assert cluster.namespace == "bench"
    assert secured.seen == [(None, "Bearer of-the-pod")]
