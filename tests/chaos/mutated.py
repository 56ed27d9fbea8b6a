"""Kind 4: mutated answers, sent by a server over loopback to real runs, and mutated inputs, given to the commands that
read them."""

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from . import servers
from .commands import Ground
from .dialects import DIALECTS
from .generators import generator, missing_generator
from .hostile import Attack, Caller
from .trial import Attempt, Trial

ANSWERS = 300  # of one run


def answers(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Runs of many requests; nine of ten answers are mutated, the tenth must come through unharmed."""
    try:
        made = generator("mutated_answers")
    except Exception as error:
        yield partial(missing_generator, "tests/mutated_answers.py", error)
        return
    number = 0
    while True:
        for name, dialect in DIALECTS.items():
            for reader in ("compiled", "python"):
                number += 1
                yield partial(attempt_answers, ground, made, name, dialect.events is not None, reader, seed + number)


def attempt_answers(ground: Ground, made: Any, dialect: str, streams: bool, reader: str, seed: int) -> Trial:
    rng = random.Random(seed)

    def act(caller: Caller) -> None:
        answer = made.mutated_answer(rng, dialect)
        for piece in answer.reads:
            caller.send(piece)
        head = answer.raw.partition(b"\r\n\r\n")[0]
        if answer.outcome != "ok" or not (b"chunked" in head or b"content-length" in head):
            caller.close()

    attack = Attack(f"mutated answers of seed {seed}", act, hits=lambda count: count % 10 != 0, requests=ANSWERS)
    trial = servers.attempt(ground, attack, DIALECTS[dialect], streams, reader)
    trial.tried = ANSWERS
    return trial


def inputs(ground: Ground, seed: int) -> Iterator[Attempt]:
    """Batches of mutated plans, files and results, each given to the command that reads it."""
    try:
        generator("mutated_inputs")
    except Exception as error:
        yield partial(missing_generator, "tests/mutated_inputs.py", error)
        return
