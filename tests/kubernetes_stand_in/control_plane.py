"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes
on loopback, made by deploy/install-kubernetes.sh. Each control plane has its own folder and ports."""

import os
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx2

READY_S = 120.0
CONTROLLERS = (
    "job,cronjob,serviceaccount,serviceaccount-token,namespace,garbagecollector,podgc,deployment,replicaset,endpoint,"
    "ttl-after-finished,pvc-protection,pv-protection,persistentvolume-binder,resourcequota,nodelifecycle,root-ca-cert-publisher"
)
GATES = "--feature-gates=TTLAfterFinished=true"  # on by default since 1.21


class ControlPlane:
    """Its processes. `tokens` is from user to token; the user `admin` may do everything."""

    def __init__(self, binaries: Path, folder: Path, tokens: dict[str, str]) -> None:
        self._binaries, self.folder = binaries, folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._api_port, self._etcd_port, self._peer_port, manager, scheduler = _free_ports(5)
        self._other_ports = manager, scheduler
        self.url = f"https://127.0.0.1:{self._api_port}"
        folder.mkdir(parents=True, exist_ok=True)
        rows = [
            f"{token},{user},{user},{'system:masters' if user == 'admin' else ''}" for user, token in tokens.items()
        ]
        (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
        self._admin = tokens["admin"]
        self.key, self.certificate = folder / "node.key", folder / "node.crt"
        subject = ["-subj", "/CN=local", "-addext", "subjectAltName=IP:127.0.0.1"]
        self._openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "node.key", "-out", "node.crt", *subject
        )
        self._openssl("genrsa", "-out", "sa.key", "2048")

    @property
    def authority(self) -> Path:
        """The certificate that the API server made for itself."""
        return self.folder / "certs" / "apiserver.crt"

    def start(self) -> None:
        from kubernetes_stand_in.node import kubeconfig

        (self.folder / "kubeconfig").write_text(kubeconfig(self.url, self._admin))
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{self._peer_port}"
        self._run(
            "etcd", "--data-dir=etcd", f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
        )  # fmt: skip
        self.start_api()
        common = (
            "--kubeconfig=kubeconfig",
            "--leader-elect=false",
            "--port=0",
            "--bind-address=127.0.0.1",
            "--cert-dir=certs",
            GATES,
        )
        self._run(
            "kube-controller-manager", *common, f"--secure-port={self._other_ports[0]}",
            "--service-account-private-key-file=sa.key", f"--controllers={CONTROLLERS}",
            "--root-ca-file=certs/apiserver.crt",
            "--node-monitor-grace-period=5s", "--node-monitor-period=1s", "--concurrent-gc-syncs=5",
        )  # fmt: skip
        self._run("kube-scheduler", *common, f"--secure-port={self._other_ports[1]}")

    def start_api(self) -> None:
        self._run(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            f"--secure-port={self._api_port}", "--cert-dir=certs", "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key",
            "--service-account-issuer=https://kubernetes.default.svc", "--token-auth-file=tokens.csv",
            "--authorization-mode=RBAC", "--allow-privileged=true", "--endpoint-reconciler-type=none",
            "--advertise-address=10.244.0.1", GATES,
            "--default-not-ready-toleration-seconds=20", "--default-unreachable-toleration-seconds=20",
        )  # fmt: skip
        give_up_at = time.monotonic() + READY_S
        while not self._answers():
            ended = self._processes["kube-apiserver"].poll()
            if ended is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"kube-apiserver did not start: {self.folder / 'kube-apiserver.log'}")
            time.sleep(0.1)

    def stop_api(self) -> None:
        process = self._processes.pop("kube-apiserver")
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _answers(self) -> bool:
        try:
            headers = {"authorization": f"Bearer {self._admin}"}
            return httpx2.get(f"{self.url}/readyz", verify=_unverified(), headers=headers, timeout=5).status_code == 200
        except httpx2.HTTPError:
            return False

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            command = [str(self._binaries / name), *arguments]
            environment = {**os.environ, "GOMAXPROCS": "2"}
            self._processes[name] = subprocess.Popen(
                command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
