"""docs/reference/results.md lists and explains everything that a run stores."""

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from exported_runs import open_run

from inferometer.plan.model import Plan
from inferometer.record.columns import Records
from inferometer.record.environment import OBSERVED, Environment
from inferometer.record.record import Record, Samples
from inferometer.record.run import Run, document
from inferometer.record.summary import Summary, SummaryPart
from inferometer.record.verdict import Verdict
from inferometer.store import folder, manifest
from inferometer.store import manifest as marks

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference" / "results.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def kinds(generate: ModuleType) -> list[type]:
    return list(generate.structs_of(Verdict, Summary, Environment))


def section(name: str) -> str:
    assert f"\n## {name}\n" in PAGE, name
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_page_is_up_to_date(generate: ModuleType) -> None:
    assert generate.pages()["results.md"] == PAGE, "python docs/generate.py writes it anew"


def test_every_part_of_a_summary_is_reached(kinds: list[type]) -> None:
    assert set(_below(SummaryPart)) <= set(kinds)


def _below(kind: type) -> list[type]:
    return [each for direct in kind.__subclasses__() for each in (direct, *_below(direct))]  # type: ignore[var-annotated]


def test_every_field_of_summary_and_verdict_is_named(generate: ModuleType, kinds: list[type]) -> None:
    for kind in kinds:
        text = section(kind.__name__)
        missing = [name for name in generate.own_fields(kind) if f"| `{name}` |" not in text]
        assert not missing, f"{kind.__name__}: {missing}"


def test_every_field_is_explained(generate: ModuleType, kinds: list[type]) -> None:
    """By a sentence, or by the section that its type links to."""
    bare = [
        f"{kind.__name__}.{name}"
        for kind in [*kinds, Record]
        for name, hint in generate.own_fields(kind).items()
        if not generate.meaning_of(kind, name) and "](#" not in generate._words_of(hint)
    ]
    assert not bare, "add a comment behind the field, or a line to docs/meanings.yaml"


def test_no_meaning_is_of_a_field_that_is_gone(generate: ModuleType, kinds: list[type]) -> None:
    fields = {kind.__name__: set(generate.own_fields(kind)) for kind in [*kinds, Record]}
    meanings = yaml.safe_load((DOCS / "meanings.yaml").read_text(encoding="utf-8"))
    dead = [f"{kind}.{name}" for kind, named in meanings.items() for name in named if name not in fields.get(kind, ())]
    assert not dead


def test_every_field_of_the_document_is_named(run: Run) -> None:
    made = document(dataclasses.replace(run, source="vllm"))
    assert not [name for name in made if f"| `{name}` |" not in section("Document")]
    assert not [name for name in made["run"] if f"| `{name}` |" not in section("run")]
    assert not [name for name in Plan.model_fields if f"| `{name}` |" not in section("plan")]
    assert not [name for name in OBSERVED if f"| `{name}` |" not in section("Environment")]


def test_every_column_is_named() -> None:
    records = open_run().records
    assert isinstance(records, Records)
    stored, shown = section("records.parquet"), section("run.records.to_arrow()")
    columns = records.to_arrow().column_names
    assert not [name for name in columns if f"| `{name}` |" not in stored + shown]
    assert not [name for name in Record.__struct_fields__ if f"| `{name}` |" not in stored]
    assert not [name for name in ("ttft", "tpot", "e2e") if f"| `{name}` | s" not in shown]
    assert not [field.name for field in dataclasses.fields(Samples) if f"| `{field.name}` |" not in PAGE]


def test_every_file_of_a_run_is_named(tmp_path: Path) -> None:
    """Those that a run writes; what is measured is in no other file."""
    made = folder.new_run(tmp_path)
    made.write_plan({})
    made.write_environment(Environment())
    made.write_summary(Summary())
    made.write_verdict(Verdict(status="valid"))
    made.gather()
    made.write_state("complete")
    names = {file.name for file in made.path.iterdir()}
    text = section("Files")
    known = {folder.RECORDS, folder.SAMPLES, folder.OBSERVER_LOG, manifest.MANIFEST, marks.MARKS}
    assert names >= {"plan.yaml", "run.json", "shards.json", "records.parquet", "manifest.json"}
    assert not [name for name in names | known if name not in text]


def test_flat_fields_are_said_to_be_flat() -> None:
    assert "the entries are fields of the object itself" in section("MeasureSummary")
    assert "the entries are fields of the object itself" in section("Sessions")
