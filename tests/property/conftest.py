"""Settings of the property tests: no deadlines, and both readers if there are two."""

import pytest
from hypothesis import settings

from inferometer.wire import api, skeleton, sse
from inferometer.wire.compiled import compiled

settings.register_profile("unhurried", deadline=None)  # how long an example takes says more about the machine
settings.load_profile("unhurried")


@pytest.fixture(scope="module", params=["compiled", "python"])
def reader(request):
    """Everything twice: with the compiled part of the wire and without."""
    if request.param == "compiled" and compiled() is None:
        pytest.skip("the compiled reader was not built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "WORTH_LEARNING", 0)  # made-up answers are short
        if request.param == "python":
            patch.setattr(sse, "compiled", lambda: None)
            patch.setattr(skeleton, "compiled", lambda: None)
        yield request.param
