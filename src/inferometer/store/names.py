"""Run ids that sort by time and can be said aloud: 20261115-031207-plum-otter."""

import random
import re
from datetime import UTC, datetime

_FIRST = """
    amber ample azure balmy basil brave brisk bronze calm cedar civil clear coral cosmic crisp dapper deft dusky
    eager early ember fable fern fleet frank fresh gentle gilt glad golden grand green hazel honest ivory jade
    jolly keen kind lemon lilac linen lively lunar maple mellow mild mint misty noble olive opal pearl plum
    proud quick quiet royal rustic sable sage solar
"""
_SECOND = """
    alder badger beaver bison bream brook canyon comet condor crane curlew delta dingo dove dune eagle egret
    ermine falcon finch fjord fox gecko gibbon glade grebe gull harbor hare heron ibex ibis jackal jay kite lark
    lemur linnet lynx magpie marten meadow mole moose newt ocelot orca osprey otter panda petrel plover puffin
    quail raven robin seal sparrow stoat stork tapir tern wren
"""


def run_id(started: datetime) -> str:
    """Seconds in UTC and one of 3,900 names: ids of the same second may clash, and are then drawn again."""
    draw = random.SystemRandom()
    name = f"{draw.choice(_FIRST.split())}-{draw.choice(_SECOND.split())}"
    return f"{started.astimezone(UTC):%Y%m%d-%H%M%S}-{name}"


_ID = re.compile(r"\d{8}-\d{6}-\w+-\w+")


def is_run_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None
