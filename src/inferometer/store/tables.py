"""The tables of the index, the same in SQLite and in PostgreSQL; `migrations` brings older ones to this form."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only where the type is INTEGER

runs = Table(
    "runs",
    metadata,
    Column("number", _NUMBER, primary_key=True, autoincrement=True),  # short: the tables below repeat it often
    Column("id", String, nullable=False, unique=True),
    Column("started", String, nullable=False),  # UTC, so that it sorts; "" where it is not known
    Column("started_as", String, nullable=False),  # as the run says it, with its zone
    Column("state", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("source", String),
    Column("verdict", String),
    Column("name", Text),
    Column("model", Text),
    Column("target", Text),
    Column("engine", Text),
    Column("engine_version", Text),
    Column("commit", Text),
    Column("hardware", Text),  # as people say it
    Column("requests", BigInteger),
    Column("workload_id", String),  # the three hashes of `judge.identity`
    Column("stack_id", String),
    Column("hardware_id", String),
    Column("headline", Text, nullable=False),  # JSON: the quantities that every list shows
    Column("location", Text, nullable=False),  # `runs/<id>` in the store, file://host/path, s3://bucket/path
    Column("damage", Text),  # why the folder cannot be read, where it cannot
    Column("remedy", Text),
    Column("imported_from", String),  # the SHA-256 of the file that it was imported from
    Index("runs_of_identity", "workload_id", "stack_id", "hardware_id"),
    Index("runs_of_state", "state"),
    Index("runs_by_imported_from", "imported_from"),
)


def _of_run() -> Column[int]:
    """No foreign key: 150 checks a run took PostgreSQL longer than everything else, and only `index.forget` deletes."""
    return Column("run", _NUMBER, primary_key=True, autoincrement=False)


quantities = Table(
    "quantities",
    metadata,
    _of_run(),
    Column("key", String, primary_key=True),  # as `measure.values` names it: ttft.p99
    Column("value", Float(53), nullable=False),
    Column("low", Float(53)),
    Column("high", Float(53)),
    Index("quantities_by_value", "key", "value"),
    sqlite_with_rowid=False,
)

parameters = Table(
    "parameters",
    metadata,
    _of_run(),
    Column("path", String, primary_key=True),  # of the plan: load.rate
    Column("text", Text, nullable=False),
    Column("number", Float(53)),  # where it is one: 60 for 60s
    Index("parameters_by_path", "path", "number"),
    sqlite_with_rowid=False,
)

# By the run's id and not by its number: they outlive a run that is entered anew.
tags = Table(
    "tags",
    metadata,
    Column("run", String, primary_key=True),
    Column("tag", String, primary_key=True),
    Index("tags_by_tag", "tag"),
)

baselines = Table(
    "baselines",
    metadata,
    Column("name", String, primary_key=True),
    Column("run", String, nullable=False),
    Column("set_at", String, nullable=False),
)

# When a place with run folders was last looked at: while nothing came or went there, it need not be read again.
followed = Table(
    "followed",
    metadata,
    Column("place", String, primary_key=True),
    Column("changed_at", BigInteger, nullable=False),  # of the folder, nanoseconds
)

experiments = Table(
    "experiments",
    metadata,
    Column("run", String, primary_key=True),
    Column("experiment", String, nullable=False),
    Column("case", Text),
    Index("experiments_by_experiment", "experiment"),
)
