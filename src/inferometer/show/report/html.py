"""A report as one HTML file: style, scripts and data inside, nothing from outside."""

from markupsafe import Markup

from inferometer import __version__
from inferometer.show.charts.rendering import has_charts
from inferometer.show.report.document import Charts, Report
from inferometer.show.report.page import chart_scripts, chart_themes, figure, page, templates

WITHOUT = "Charts are not in this report: they need the extra 'charts' (pip install 'inferometer[charts]')."


def as_html(report: Report) -> str:
    drawn = bool(report.charts) and has_charts()
    body = (
        templates()
        .get_template("report.html")
        .render(
            report=report,
            version=__version__,
            kind=lambda block: type(block).__name__,
            figures=lambda block: figures(block) if drawn else Markup("<p>{}</p>").format(WITHOUT),
        )
    )
    themes = chart_themes() if drawn else Markup("")
    return page(f"{report.title}: {report.verdict.word}", Markup(body) + themes, chart_scripts() if drawn else [])


def figures(block: Charts) -> Markup:
    return Markup('<div class="charts">{}</div>').format(Markup("\n").join(figure(chart) for chart in block.charts))
