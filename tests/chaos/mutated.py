"""Kind 4: mutated answers, sent by a server over loopback to real runs, and mutated inputs, given to the commands that
read them."""

import json
import random
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from . import servers
from .batch import Batch
from .commands import Ground
from .dialects import DIALECTS
from .generators import generator, missing_generator
from .hostile import Attack, Caller
from .trial import DOCUMENTED, Attempt, Trial

ANSWERS = 300  # of one run
INPUTS = 50  # of one attempt
MOST_INPUTS = 1_000_000
WAITS = "kubeconfig.yaml"  # one that is right makes a command try for a minute to reach its cluster


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
    """Batches of mutated plans, files and results, each given to the commands that read such a thing."""
    try:
        drawn = generator("mutated_inputs").inputs(seed, MOST_INPUTS)
        made = (each for each in drawn if each.name != WAITS)
        batch = list(islice(made, INPUTS))
    except Exception as error:
        yield partial(missing_generator, "tests/mutated_inputs.py", error)
        return
    first = 0
    while batch:
        yield partial(attempt_inputs, ground, batch, f"inputs {first} to {first + len(batch) - 1} of seed {seed}")
        first += len(batch)
        batch = list(islice(made, INPUTS))


def attempt_inputs(ground: Ground, batch: list[Any], name: str) -> Trial:
    trial = Trial(name, tried=len(batch))
    folder = ground.folder("inputs")
    with Batch(ground) as commands:
        for made in batch:
            part = Trial(f"{made.kind} {made.name} ({made.how})"[:150])
            for words in _command_lines(made, folder):
                ended = commands.run(*words, cwd=folder)
                part.judge(ended, DOCUMENTED)
                if ended.hung:
                    break
            trial.add(part)
    shutil.rmtree(folder, ignore_errors=True)
    return trial


def _command_lines(made: Any, folder: Path) -> list[list[str]]:
    """The commands that read such an input; none of them sends anything."""
    if made.kind == "command":  # another tool's command line, a word on each line
        return [["plan", "show", "--", *made.content.decode("utf-8", "replace").replace("\0", "").split("\n")]]
    path = folder / made.name
    path.write_bytes(made.content)
    match made.kind:
        case "plan":
            return [["plan", "check", str(path)], ["run", str(path), "--dry-run"]]
        case "result":
            return [["import", str(path), "--store", str(folder / "store")]]
        case "workload":
            return [["run", "--dry-run", "--set", f"workload={{path: {json.dumps(str(path))}}}"]]
        case "own":
            return [words for _, words in generator("mutated_inputs").commands_for(path)]
    raise ValueError(f"tests/mutated_inputs.py makes inputs of a kind that is not known here: {made.kind}")
