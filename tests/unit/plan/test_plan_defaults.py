"""Defaults of sections are made without validation, which would take a part of every start: they must equal what
validation makes of them."""

import subprocess
import sys
from collections.abc import Iterator

import inferometer.plan.experiment
import inferometer.plan.model  # noqa: F401
from inferometer.plan.fields import Section


def sections(kind: type[Section] = Section) -> Iterator[type[Section]]:
    for below in kind.__subclasses__():
        yield below
        yield from sections(below)


def defaults() -> dict[str, Section]:
    fields = {f"{kind.__name__}.{name}": field for kind in sections() for name, field in kind.model_fields.items()}
    return {name: field.default for name, field in fields.items() if isinstance(field.default, Section)}


def test_defaults_are_as_validation_makes_them() -> None:
    assert len(defaults()) > 30
    for name, default in defaults().items():
        again = type(default)(**{field: getattr(default, field) for field in default.model_fields_set})
        assert (repr(default), default.model_fields_set) == (repr(again), again.model_fields_set), name
        assert default == again
        assert default.__pydantic_private__ == again.__pydantic_private__


def test_a_plan_of_flags_builds_one_validator_of_sections() -> None:
    """Each takes 0.3 to 5 ms, and that of the plan contains them all. `Tls` is a default of the workload's context."""
    script = (
        "import inferometer.cli.work.run; from inferometer.plan.fields import Section\n"
        "from inferometer.plan.reading import plan_from; from inferometer.plan.text import to_mapping\n"
        "plan = plan_from({'target': {'url': 'http://a'}, 'stop': {'requests': 10}})\n"
        "plan.model_dump(mode='json'); to_mapping(plan)\n"
        "def all_of(kind): return [kind, *(inner for below in kind.__subclasses__() for inner in all_of(below))]\n"
        "print({kind.__name__ for kind in all_of(Section) if kind.__pydantic_complete__} - {'Tls'})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "{'Plan'}\n"
