"""How long tests are: every default run shows the same sentences on a few seeds and short stretches of virtual time;
`INFEROMETER_LONG=1` takes the long form of each."""

import os

LONG = bool(os.environ.get("INFEROMETER_LONG"))
