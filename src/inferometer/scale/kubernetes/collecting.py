"""Results out of a claim: collector pods print them, piece by piece, and they are put together here."""

from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from inferometer.errors import LostError
from inferometer.scale.kubernetes.carrying import Cursor, Unpacking
from inferometer.scale.kubernetes.client import Cluster
from inferometer.scale.kubernetes.launcher import Launcher
from inferometer.scale.kubernetes.manifests import JobSettings, ObjectPlace, PodSettings, object_name

TRIES = 3  # collectors in a row that bring nothing new
WITHIN_S = 600.0  # for one of them


def collect(
    cluster: Cluster,
    place: ObjectPlace,
    pod: PodSettings,
    results: str,
    into: Path,
    start_s: float,
    notify: Callable[[str], None],
) -> list[Path]:
    """The files of a results folder of the claim, below `into`; none where it has no such folder. `pod` is the pod of
    the launcher, which has the image and the claim."""
    unpacking = Unpacking(into)
    in_vain = number = 0
    while (cursor := unpacking.cursor) is not None:
        number += 1
        advanced = unpacking.take(_piece(cluster, place, pod, results, cursor, number, start_s, notify))
        in_vain = 0 if advanced else in_vain + 1
        if in_vain >= TRIES:
            text = f"{results}: the results could not be read out of the claim, {TRIES} collector pods brought nothing"
            last = f"; the last one printed: {unpacking.text[-1]}" if unpacking.text else ""
            raise LostError(text + last, cluster.kubectl("get pods", place.namespace))
    return unpacking.finish()


def _piece(
    cluster: Cluster,
    place: ObjectPlace,
    pod: PodSettings,
    results: str,
    cursor: Cursor,
    number: int,
    start_s: float,
    notify: Callable[[str], None],
) -> list[str]:
    lines: list[str] = []
    command = ["inferometer", "worker", "--results", results, "--print", f"{cursor.file}:{cursor.at}"]
    printing = structs.replace(
        pod,
        command=command,
        cpu="500m",
        memory="512Mi",
        config_maps={},
        environment={name: value for name, value in pod.environment.items() if not name.startswith("LLMDBENCH_")},
        secret_environment={},
        optional_secrets={},
        service_account=None,
        node_selector={},  # where the launchers had to be does not matter: the volume decides
    )
    place = structs.replace(place, component="collector")
    settings = JobSettings(deadline_s=int(start_s + WITHIN_S), keep_s=60)
    collector = Launcher(
        cluster,
        place,
        object_name("inferometer-collector", f"{place.run}-{number}"),
        printing,
        settings,
        labels={"inferometer/piece": str(number)},
    )
    try:
        collector.create()
        collector.wait(start_s, WITHIN_S, notify, lambda _pod, line: lines.append(line))
    finally:
        collector.remove(wait_s=30.0)
    return lines
