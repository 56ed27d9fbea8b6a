"""Records as tables of other libraries: one row per request, with the raw instants and its measures in seconds."""

from typing import Any

import numpy as np

from inferometer.errors import InferometerError
from inferometer.measure.inputs import Answers
from inferometer.measure.registry import REGISTRY, request_values
from inferometer.record.columns import SCALARS, Records
from inferometer.record.parquet import records_table

Table = Any  # pyarrow.Table


def to_arrow(records: Records) -> Table:
    """All fields of the records, then a column for every measure that a request has, in order of the schedule. What is
    undefined is null, as are measures of answers where the request was not answered."""
    import pyarrow as pa

    answers = Answers.of(records)
    table = records_table(answers.records)
    for name in measure_columns():
        values = request_values(name, answers)
        if REGISTRY[name].kind == "answered":
            values = np.where(answers.ok, values, np.nan)
        table = table.append_column(name, pa.array(values, mask=np.isnan(values)))
    return table


def measure_columns() -> list[str]:
    """Measures that have a value per request, but for those that are a field of the record anyway."""
    return [name for name, measure in REGISTRY.items() if measure.per_request is not None and name not in SCALARS]


def to_pandas(records: Records) -> Any:
    try:
        import pandas  # noqa: F401 - only whether it is there
    except ImportError:
        raise InferometerError("records as a pandas table need pandas", "pip install pandas") from None
    return to_arrow(records).to_pandas()


def to_polars(records: Records) -> Any:
    try:
        import polars
    except ImportError:
        raise InferometerError("records as a polars table need polars", "pip install polars") from None
    return polars.from_arrow(to_arrow(records))
