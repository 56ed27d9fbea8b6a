"""Every `"module:attribute"` in a registry exists: otherwise only a user would notice a moved module."""

import re
from pathlib import Path

import pytest

import inferometer
from inferometer.vocabulary import attribute_at

SOURCE = Path(inferometer.__file__).parent
_NAMED = re.compile(r'"(inferometer(?:\.\w+)+:\w+)"')
NAMED = sorted({name for file in SOURCE.rglob("*.py") for name in _NAMED.findall(file.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("name", NAMED)
def test_it_is_there(name: str) -> None:
    attribute_at(name)


def test_there_are_some() -> None:
    assert len(NAMED) > 50
