from inferometer.documents.document import Document
from inferometer.plan.model import Plan
from inferometer.plan.stored import StoredPlan
from inferometer.plan.text import to_mapping

ODD: tuple[object, ...] = (None, 7, "text", [], ["x"], {}, {"type": 3}, {"url": {"a": 1}}, True)
ATTRIBUTES = [name for name, value in vars(StoredPlan).items() if not name.startswith("_") and not callable(value)]


def test_a_plan_of_ours_is_read_with_its_defaults() -> None:
    plan = Plan.model_validate({"name": "n", "target": {"url": "http://a", "model": "m"}, "load": {"rate": 3}})
    kept = StoredPlan(to_mapping(plan))
    assert (kept.name, kept.model, kept.urls, kept.api, kept.seed) == ("n", "m", ["http://a"], "completions", 0)
    assert kept.checked == plan and kept.load == plan.load


def test_what_another_tool_or_version_left_there_is_none_or_empty() -> None:
    for name in ("name", "target", "server", "load", "workload", "traffic", "warmup", "engine", "benchmark", "seed"):
        for odd in ODD:
            kept = StoredPlan({name: odd})  # type: ignore[dict-item]
            for attribute in ATTRIBUTES:
                getattr(kept, attribute)
    foreign = StoredPlan({"model": "m", "load": {"rate": 5, "type": "poisson"}, "quantum": {"qubits": 7}})
    assert foreign.checked is None and foreign.load is not None and foreign.load.rate == 5


def test_fields_of_a_document_have_the_type_that_is_asked_for() -> None:
    document = Document({"a": "1.5", "b": 8.0, "c": [1, "x", None], "d": {"e": {"f": True}}, "g": "inf", "h": False})
    assert (document.number("a"), document.count("b"), document.count("a"), document.number("g")) == (
        1.5,
        8,
        None,
        None,
    )
    assert (document.texts("c"), document.numbers("c"), document.numbers("d")) == (["1", "x"], [1.0], [])
    assert (document.section("d", "e").flag("f"), document.section("a", "e").flag("f")) == (True, None)
    assert (document.number("h"), document.text("h"), document.flag("h")) == (None, "false", False)
