"""Two users of one namespace measure at the same time, with no more than the printed rights."""

import threading
from pathlib import Path

from stacks import MODEL, Stack, stack_in

from inferometer.conduct.kubernetes import run_on_cluster
from inferometer.scale.kubernetes.manifests import roles_for
from kubernetes_stand_in.clusters import TestedCluster, thorough

USERS = ("alice", "bob")


@thorough
def test_two_users_at_once(cluster: TestedCluster, tmp_path: Path) -> None:
    stack = stack_in(cluster, cluster.new_namespace(), tmp_path)
    states: dict[str, list[str]] = {}

    def measure(user: str) -> None:
        own = Stack(cluster, stack.namespace, stack.volume, tmp_path / user)
        own.folder.mkdir()
        request = own.request(id=f"of-{user}", storage_class=f"of-{stack.namespace}")
        with own.open(user) as connection:
            launched = run_on_cluster(connection, request, store=own.folder / "store")
        states[user] = [run.state for run in launched.runs if run.subject.model == MODEL]

    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{stack.namespace}"
    for user in USERS:
        for thing in roles_for(stack.namespace, stack.namespace, f"of-{user}", user=user):
            cluster.create(f"{base}/{thing.kind.lower()}s", thing.to_dict())
    threads = [threading.Thread(target=measure, args=(user,)) for user in USERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert states == {user: ["complete"] for user in USERS}
    left = {
        f"{kind}/of-{user}-{part}"
        for kind in ("roles", "rolebindings")
        for user in USERS
        for part in ("launch", "read")
    }
    stack.until_only("persistentvolumeclaims/workload-pvc", *left)
