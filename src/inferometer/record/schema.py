"""The schema version that everything we write carries, and the check when it is read again."""

from inferometer.errors import StoreError

VERSIONS = {
    "run": 2,  # the document of a run, and run.json
    "log": 1,
    "records": 2,
    "samples": 1,
    "plan": 1,
    "environment": 1,
    "summary": 2,
    "verdict": 2,
    "shards": 1,
    "index": 2,  # the list of runs
    "marks": 1,
    "manifest": 1,
    "comparison": 2,
    "check": 2,
    "experiment": 2,
    "event": 1,  # as a webhook gets it
    "notifications": 2,  # who was told of what
    "ci": 2,
    "rosetta": 1,  # a run by another tool's definitions
    "search": 2,
    "import": 1,
    "formats": 1,
    "harnesses": 1,  # other load generators, or the runs that they made of one plan
    "doctor": 2,
    "report": 1,
    "site": 1,
    "store": 1,
    "server-model": 1,  # a fitted model of a server
    "prediction": 1,
}


def schema_of(kind: str) -> str:
    return f"inferometer/{kind}/{VERSIONS[kind]}"


def check_schema(where: object, kind: str, schema: object) -> None:
    """Refuse what is not ours, and what a newer Inferometer wrote."""
    family, _, version = str(schema).rpartition("/")
    if family != f"inferometer/{kind}" or not version.isdigit():
        raise StoreError(f"{where}: not {kind} of an Inferometer run, its schema is {schema!r}")
    if int(version) > VERSIONS[kind]:
        raise StoreError(
            f"{where}: written by a newer Inferometer, schema {schema}; this one knows {schema_of(kind)}",
            "update Inferometer: pip install --upgrade inferometer",
        )
