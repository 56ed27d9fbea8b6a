"""Our exports for other tools are imported as the same numbers."""

from pathlib import Path

import pytest
from made_runs import made_run

from inferometer.exchange.exporting import ExportRequest, pieces
from inferometer.exchange.importing.importer import summary_of
from inferometer.exchange.importing.recognise import format_named, parse, recognise
from inferometer.measure.values import quantities


@pytest.mark.parametrize(
    ("exported", "imported"),
    [("vllm", "vllm-bench-serve"), ("llm-d", "llm-d-report"), ("nm-vllm", "nm-vllm"), ("inferx", "inferx")],
)
@pytest.mark.parametrize("detailed", [False, True])
def test_a_run_that_goes_out_and_comes_back_is_the_same(exported: str, imported: str, detailed: bool) -> None:
    run = made_run(400)
    piece = pieces(exported, ExportRequest([run], detailed=detailed))[0]
    source = parse(Path(piece.name).name, piece.content)
    assert recognise(source) == imported
    (again,) = format_named(imported).read(source).runs
    before, after = quantities(run.summary), quantities(summary_of(again))
    for key in ("ttft.mean", "tpot.mean", "e2e.p50"):
        if key in after:
            assert after[key].value == pytest.approx(before[key].value, rel=0.01)
    assert "ttft.mean" in after
    assert after["request_rate"].value == pytest.approx(before["request_rate"].value, rel=0.05)
