"""Charts as pictures for whoever knows only a run."""

from inferometer.record.run import Run
from inferometer.show.charts.chart import Cannot
from inferometer.show.charts.registry import draw
from inferometer.show.charts.rendering import render_png


def throughput_latency_png(run: Run) -> bytes | None:
    """None where no request was answered: there is nothing to draw."""
    try:
        return render_png(draw("throughput_latency", run).spec)
    except Cannot:
        return None
