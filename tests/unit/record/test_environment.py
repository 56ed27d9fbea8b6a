"""The environment of a run: parsed into types, and written back unchanged."""

import json
from typing import Any

import pytest

from inferometer.documents.document import Document
from inferometer.errors import StoreError
from inferometer.record.encoding import environment_document, environment_from
from inferometer.record.environment import Environment, ImportOrigin, MeasuredTarget, ServerStart

DOCUMENTS: dict[str, dict[str, Any]] = {
    "observed": {
        "inferometer": None,
        "command": "inferometer run",
        "machine": {"host": "vm", "cpu": "Xeon", "cores": 8, "cpu_limit": None, "slots": 2},
        "gpu": {"driver": "580", "gpus": [{"index": 0, "name": "NVIDIA H200", "partition": None}]},
        "git": None,
        "target": {"server": "vLLM", "version": "0.24.0", "model": "m", "urls": ["http://localhost:1"]},
        "nonce": "12",
    },
    "imported": {
        "target": {"server": "vllm"},
        "gpus": ["H100", "H100"],
        "stack": {"roles": ["prefill"], "args": {"tp": 2}},
        "imported": {"format": "vllm", "file": "a.json", "sha256": "0"},
    },
    "foreign": {"cpu": "x", "names": ["a"], "more": {"b": None}, "gpus": [{"model": "MI300X"}]},
    "empty": {},
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_written_again_as_it_was_read(name: str) -> None:
    document = DOCUMENTS[name]
    assert json.dumps(environment_document(environment_from(document))) == json.dumps(document)


def test_its_parts_are_attributes() -> None:
    observed, foreign = environment_from(DOCUMENTS["observed"]), environment_from(DOCUMENTS["foreign"])
    assert observed.machine is not None and observed.machine.cores == 8
    assert observed.target is not None and observed.target.shown_engine == "vLLM"
    assert observed.accelerators == ["NVIDIA H200"]
    assert foreign.accelerators == ["MI300X"]
    assert foreign.more["cpu"] == "x"


def test_what_is_unknown_is_left_out_of_one_that_was_not_read() -> None:
    made = Environment(target=MeasuredTarget(server="vllm"), imported=ImportOrigin(format="vllm", file="a", sha256="0"))
    assert environment_document(made) == {
        "target": {"server": "vllm"},
        "imported": {"format": "vllm", "file": "a", "sha256": "0"},
    }
    server = Document(environment_document(Environment(server=ServerStart(type="vllm")))).section("server")
    assert server["pid"] is None and "image" not in server


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({"target": "x"}, "target: "),
        ({"target": {"version": {}}}, "target.version: "),
        ({"machine": {"cores": "many"}}, "machine.cores: "),
        ({"gpus": [[]]}, "gpus.0: "),
    ],
)
def test_what_cannot_be_read_is_named(document: dict[str, Any], where: str) -> None:
    with pytest.raises(StoreError, match=f"its environment cannot be read: {where}"):
        environment_from(document)


def test_other_fields_of_an_imported_file_are_read_under_their_former_name() -> None:
    assert environment_from({"hardware": "H100", "said": {"tp": "2"}}).metadata == {"tp": "2"}
