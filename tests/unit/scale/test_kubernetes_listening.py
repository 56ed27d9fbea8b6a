"""The threads that receive messages of pods, with stand-ins that answer for the pods."""

from types import SimpleNamespace
from typing import Any

from inferometer.plan.model import KubernetesSettings
from inferometer.scale.kubernetes.place import _Crew, _Worker
from inferometer.scale.worker import observed_shard


def test_rubbish_in_place_of_records_is_a_pod_that_does_not_answer() -> None:
    """A thread that ended with an error would leave the run waiting for ever."""
    lost = SimpleNamespace(status=SimpleNamespace(phase="Running"), metadata=SimpleNamespace(deletionTimestamp="now"))
    cluster: Any = SimpleNamespace(namespace="n", read=lambda *_: lost, ask_pod=lambda *_, **__: b"<html>")
    job: Any = SimpleNamespace(plan={}, log="log")
    crew = _Crew(cluster, observed_shard, [job], lambda _: None, KubernetesSettings())
    worker = _Worker(cluster, 0, job, "pod-0", "token")
    crew._fetch_all([worker])
    assert crew._arrived.get_nowait() == (worker, "its pod was deleted, or its node lost")
