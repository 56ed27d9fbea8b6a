"""The guide to Python is true: its blocks run, one after the other, in one namespace."""

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
SHORTER = {'"10s"': '"1s"', '"60s"': '"20s"', 'step="30s", steps=6': 'step="1s", steps=1'}  # for less time
NEEDS = {"to_pandas": "pandas", "to_polars": "polars"}  # no part of Inferometer


def test_blocks_run_in_order(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "guide"}
    for number, block in enumerate(BLOCKS):
        if any(word in block and importlib.util.find_spec(module) is None for word, module in NEEDS.items()):
            continue
        for long, short in SHORTER.items():
            block = block.replace(long, short)
        exec(compile(block, f"block {number} of docs/guides/python.md", "exec"), namespace)
    assert namespace["run"].status == "valid"
    assert namespace["table"].num_rows > 0
    assert namespace["comparison"].changes
    assert [row.state for row in namespace["swept"].rows] == ["complete", "complete"]
    assert (tmp_path / "report.html").exists()


def test_every_function_of_the_front_door_is_shown() -> None:
    import inferometer

    functions = {name for name in inferometer.__all__ if name[0].islower()} - {"load_run", "plan_from", "read_plan"}
    assert not [name for name in functions if f"inferometer.{name}(" not in GUIDE]


def test_what_other_documents_import_is_there() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*/*.md")]}
    imports = {
        (path.name, module, name.strip())
        for path, text in texts.items()
        if path.parent.name != "decisions"  # these are of their day
        for module, names in re.findall(r"^ *from (inferometer[\w.]*) import ([\w, ]+)$", text, re.MULTILINE)
        for name in names.split(",")
    }
    assert imports
    assert not [one for one in imports if not hasattr(importlib.import_module(one[1]), one[2])]


def test_every_keyword_is_named() -> None:
    from inferometer.conduct.front import KEYWORDS

    assert not [name for name in KEYWORDS if f"`{name}`" not in GUIDE]


def test_the_readme_leads_here() -> None:
    assert "docs/guides/python.md" in (ROOT / "README.md").read_text(encoding="utf-8")
