"""docs/reference agrees with the code, and is complete."""

import importlib.util
from pathlib import Path
from types import ModuleType

import click
import pytest

from inferometer.cli.group import COMMANDS, group
from inferometer.measure.registry import REGISTRY
from inferometer.plan.overrides import known_paths
from inferometer.vocabulary import MEASURES

DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli.md", "plan.md", "measures.md"])
def test_pages_are_up_to_date(generate: ModuleType, name: str) -> None:
    kept = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert kept == generate.pages()[name], "python docs/generate.py writes it anew"


def test_every_command_and_option_is_documented() -> None:
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"## inferometer {name}\n" in page
        command = group.get_command(click.Context(group), name)
        assert command is not None
        options = [option for each in command.params if isinstance(each, click.Option) for option in each.opts]
        assert not [option for option in options if option not in page], name


def test_every_setting_of_the_plan_is_documented() -> None:
    page = (DOCS / "reference" / "plan.md").read_text(encoding="utf-8")
    fields = {path.rpartition(".")[2] for path in known_paths() if not path.endswith("]")}
    assert not [field for field in fields if f"| `{field}` |" not in page]


def test_every_measure_is_documented() -> None:
    page = (DOCS / "reference" / "measures.md").read_text(encoding="utf-8")
    assert REGISTRY.keys() == MEASURES.keys()
    assert not [name for name in MEASURES if f"| `{name}` |" not in page]
