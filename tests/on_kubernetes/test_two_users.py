"""Two users of one namespace measure at the same time, with no more than the printed rights."""

import threading
from pathlib import Path

from stacks import MODEL, Stack, stack_in

from inferometer.conduct.kubernetes import run_on_cluster
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

    with stack.rights_of(USERS[0]), stack.rights_of(USERS[1]):
        threads = [threading.Thread(target=measure, args=(user,)) for user in USERS]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert states == {user: ["complete"] for user in USERS}
    stack.until_only("persistentvolumeclaims/workload-pvc")
