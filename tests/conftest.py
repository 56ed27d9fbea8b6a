"""What all tests share: property tests draw the same examples every time, so that no result depends on luck, and have
no deadline, so that none depends on a busy machine. `INFEROMETER_EXPLORE=1` draws new ones."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from lengths import LONG

settings.register_profile("steady", derandomize=True, deadline=None, max_examples=100 if LONG else 50)
if not os.environ.get("INFEROMETER_EXPLORE"):
    settings.load_profile("steady")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job: children would ignore it too
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks and traces of started servers of these tests alone: those of another process must not stop them. With a
    calibration of this machine, so that no first run takes seconds to make one."""
    from inferometer.conduct.instrument import curve_of, keep_curve

    with pytest.MonkeyPatch.context() as patch:
        state = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(state))
        keep_curve(curve_of([]), state / "inferometer")
        patch.setenv("INFEROMETER_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield
