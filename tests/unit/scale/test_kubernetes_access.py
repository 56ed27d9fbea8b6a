"""Which cluster is meant: files, contexts, proxies and programs that give credentials, as kubectl has them."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from inferometer.cli import execute
from inferometer.errors import PlanError, TargetError
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
