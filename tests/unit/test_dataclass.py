"""`inferometer.dataclass`: the same as the standard library's, method by method."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from inferometer.dataclass import _dataclass

Make = Callable[..., Any]


def made(make: Make, **options: bool) -> Any:
    """A class with every kind of field, from the standard library or from us."""

    class Point:
        x: int
        y: list[int] = field(default_factory=list)
        note: str = field(default="", compare=False)
        hidden: int = field(default=7, repr=False)
        derived: int = field(init=False)
        fixed: int = field(init=False, default=3)

        def __post_init__(self) -> None:
            object.__setattr__(self, "derived", self.x + self.hidden)

    return make(**options)(Point)


OPTIONS = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only, "eq": eq, "repr": shown}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
    for eq in (False, True)
    for shown in (False, True)
]


@pytest.fixture(params=OPTIONS, ids=lambda options: " ".join(name for name in options if options[name]) or "plain")
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return made(_dataclass, **request.param), made(dataclasses.dataclass, **request.param)


def test_objects_have_the_same_values(pair: tuple[Any, Any]) -> None:
    ours, theirs = pair
    for arguments in ({"x": 1}, {"x": 1, "y": [2], "note": "n", "hidden": 0}):
        assert dataclasses.asdict(ours(**arguments)) == dataclasses.asdict(theirs(**arguments))
    assert ours(x=1).y is not ours(x=1).y
    assert hasattr(ours(x=1), "__dict__") == hasattr(theirs(x=1), "__dict__")
    assert ours.__match_args__ == theirs.__match_args__
    assert dataclasses.asdict(dataclasses.replace(ours(x=1), x=5)) == dataclasses.asdict(theirs(x=5))


@pytest.mark.parametrize("wrong", [((), {}), ((), {"x": 1, "z": 2}), ((1, [], "", 0, 5), {}), ((1,), {"x": 1})])
def test_wrong_arguments_have_the_same_message(pair: tuple[Any, Any], wrong: tuple[tuple[Any, ...], Any]) -> None:
    messages = []
    for each in pair:
        with pytest.raises(TypeError) as raised:
            each(*wrong[0], **wrong[1])
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_text_comparison_and_hash(pair: tuple[Any, Any]) -> None:
    ours, theirs = pair
    assert (repr(ours(x=1)) == repr(theirs(x=1))) == ("__repr__" in vars(theirs))
    assert (ours(x=1) == ours(x=1, note="other")) == (theirs(x=1) == theirs(x=1, note="other"))
    assert ours(x=1) != ours(x=2)
    assert ours(x=1) != theirs(x=1)
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    if "__hash__" in vars(theirs) and theirs.__hash__ is not None:
        assert hash(ours(x=1, y=())) == hash(theirs(x=1, y=()))


def test_attributes_can_be_set_or_not(pair: tuple[Any, Any]) -> None:
    ends: list[type[Exception] | None] = []
    for each in pair:
        point = each(x=1)
        for change in (lambda: setattr(point, "x", 2), lambda: setattr(point, "new", 2), lambda: delattr(point, "x")):  # noqa: B023
            try:
                change()
                ends.append(None)
            except (AttributeError, TypeError) as error:
                ends.append(type(error))
    ours, theirs = ends[:3], ends[3:]
    # in some versions of Python, the standard library raises TypeError for a name that is no field
    assert ours == [dataclasses.FrozenInstanceError if end is TypeError else end for end in theirs]


def test_copies(pair: tuple[Any, Any]) -> None:
    ours, _ = pair
    point = ours(x=1, y=[2])
    assert dataclasses.asdict(copy.copy(point)) == dataclasses.asdict(point)
    assert copy.copy(point).y is point.y
    assert copy.deepcopy(point).y is not point.y


@_dataclass(frozen=True, slots=True)
class Stored:
    x: int


@_dataclass(frozen=True, slots=True)
class Longer(Stored):
    """With a base class, and methods of its own."""

    y: int = 2

    def __repr__(self) -> str:
        return f"longer {self.x}"

    def __hash__(self) -> int:
        return 5


@_dataclass(frozen=True)
class Empty:
    pass


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(Stored(3))) == Stored(3)  # type: ignore[call-arg]


def test_base_classes_and_own_methods() -> None:
    longer: Any = Longer(1)  # type: ignore[call-arg]
    assert (longer.x, longer.y, repr(longer), hash(longer)) == (1, 2, "longer 1", 5)
    assert longer == Longer(1, 2)  # type: ignore[call-arg]
    assert longer != Stored(1)  # type: ignore[call-arg]
    assert not dataclasses.is_dataclass(object())
    assert Empty() == Empty()
    assert hash(Empty()) == hash(())
    assert repr(Empty()) == "Empty()"


def test_one_value_is_compared_like_several() -> None:
    nan = float("nan")
    assert Stored(nan) == Stored(nan)  # type: ignore[call-arg]  # the same object, as in a tuple


COMPILED = (
    "inferometer.load.",
    "inferometer.wire.",
    "inferometer.workload.",
    "inferometer.record.log",
    "inferometer.target.lock",
)


def test_classes_that_a_run_imports_are_created_without_the_compiler() -> None:
    """The standard library's decorator takes a tenth of the start."""
    script = (
        "import sys, inferometer.cli.work.run\n"
        "classes = [made for name, module in list(sys.modules.items()) if name.startswith('inferometer')"
        " for made in vars(module).values() if isinstance(made, type) and made.__module__ == name]\n"
        "ours = [made for made in classes if '__dataclass_params__' in vars(made)]\n"
        "compiled = {made.__module__ for made in ours if made.__dataclass_params__.init}\n"
        f"print(len(ours) > 100, sorted(name for name in compiled if not name.startswith({COMPILED})))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True []\n"
