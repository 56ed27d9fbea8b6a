"""Tools whose command line only names a file: the file is what is read."""

from collections.abc import Sequence
from pathlib import Path

from inferometer.errors import PlanError
from inferometer.plan.foreign import inference_perf as config
from inferometer.plan.foreign.arguments import Flag, parse
from inferometer.plan.foreign.found import Foreign
from inferometer.plan.foreign.templates import changed
from inferometer.plan.reading import file_text
from inferometer.plan.text import parse_yaml


def inference_perf(words: Sequence[str]) -> Foreign:
    """`inference-perf --config_file X`, where every other flag is a setting by its dotted path."""
    others = [word.lstrip("-").partition("=")[0].replace("_", "-") for word in words if word.startswith("--")]
    flags = {name: Flag() for name in others} | {"config-file": Flag()}
    given, _ = parse(config.TOOL, words, flags, {"-c": "config-file"})
    name = given.text("config-file")
    if name is None:
        raise PlanError(f"{config.TOOL}: --config_file is missing")
    path = Path(name)
    if not path.is_file():
        raise PlanError(f"{config.TOOL}: --config_file {name}: there is no such file")
    said, twice = parse_yaml(file_text(path), name)
    changes = [f"{key.replace('-', '_')}={value}" for key, value in given.values.items() if key != "config-file"]
    said, notes = changed(said, changes, name, config.may_have)
    given.mistakes += twice
    given.settle()
    return config.from_mapping(said).noted(notes)
