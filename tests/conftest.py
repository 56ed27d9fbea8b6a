"""What all tests share: property tests draw the same examples every time, so that no result depends on luck.
`INFEROMETER_EXPLORE=1` draws new ones."""

import os

from hypothesis import settings

settings.register_profile("steady", derandomize=True)
if not os.environ.get("INFEROMETER_EXPLORE"):
    settings.load_profile("steady")
