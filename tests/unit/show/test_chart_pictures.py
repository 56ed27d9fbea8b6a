"""Specifications as pictures and scripts, without a browser and without the network."""

import importlib
from typing import Any

import pytest

from charted_runs import charted_run
from inferometer.errors import MissingExtra
from inferometer.show.charts import Chart, draw, registry, render_png, render_svg, vega_bundle
from inferometer.show.charts.registry import contact_sheet, size_of

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def chart() -> Chart:
    return draw("ttft_histogram", charted_run(100))


def test_a_picture_in_light_and_dark(chart: Chart) -> None:
    light, dark = render_svg(chart.spec), render_svg(chart.spec, "dark")
    assert "TTFT, scheduled (ms)" in light and "#ffffff" in light and "#14171a" in dark
    assert render_png(chart.spec, scale=1).startswith(PNG)
    assert "config" not in chart.spec  # what was given is as it was


def test_a_contact_sheet_is_one_picture(chart: Chart) -> None:
    assert contact_sheet([chart, chart, chart], scale=0.5).startswith(PNG)
    width, height = size_of(render_svg(chart.spec))
    assert width > 600 and height > 240


def test_the_bundle_is_made_once_and_can_stand_in_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("INFEROMETER_CACHE", str(tmp_path))
    bundle = vega_bundle()
    assert "window.vegaEmbed" in bundle and "</script" not in bundle.lower()
    (kept,) = (tmp_path / "charts").iterdir()
    kept.write_text("kept")
    assert vega_bundle() == "kept"


def test_nothing_in_a_script_ends_it() -> None:
    assert registry.embeddable("a = '</script><!--<script>'") == "a = '<\\/script>\\x3c!--\\x3cscript>'"


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch, chart: Chart) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(registry, "import_module", missing)
    assert not registry.has_charts()
    with pytest.raises(MissingExtra, match="'charts'"):
        render_png(chart.spec)
    assert importlib.import_module("vl_convert")
