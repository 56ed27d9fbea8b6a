"""What a launcher pod's status says of it."""

from typing import Any

import pytest
from lightkube.resources.core_v1 import Pod

from inferometer.scale.kubernetes.launcher import LauncherPod, _update

RUNNING: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
KILLED: dict[str, Any] = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
DONE: dict[str, Any] = {"terminated": {"exitCode": 0, "reason": "Completed"}}


def _pod(launcher: dict[str, Any], tool: dict[str, Any]) -> Pod:
    states = {"launcher": launcher, "tool": tool}
    common = {"image": "", "imageID": "", "ready": True, "restartCount": 0}
    containers = [{"name": name, "state": state, **common} for name, state in states.items()]
    document = {
        "metadata": {"name": "pod"},
        "spec": {"containers": [{"name": name} for name in states]},
        "status": {"phase": "Running", "containerStatuses": containers},
    }
    made = Pod.from_dict(document)
    assert isinstance(made, Pod)
    return made


@pytest.mark.parametrize(
    ("launcher", "tool", "state"),
    [
        (RUNNING, RUNNING, "running"),
        (KILLED, RUNNING, "failed"),
        (DONE, RUNNING, "running"),
        (RUNNING, DONE, "running"),
    ],
)
def test_a_killed_launcher_fails_its_pod_while_the_tool_still_runs(
    launcher: dict[str, Any], tool: dict[str, Any], state: str
) -> None:
    known = LauncherPod(0, name="pod")
    _update(known, _pod(launcher, tool))
    assert known.state == state
    assert known.exit_code == (137 if state == "failed" else None)
