"""The plan's JSON schema, for editors that complete and check while one types."""

from typing import Any

from inferometer.plan.model import Plan

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema of a plan as it may be written, short forms included (draft 2020-12)."""
    return {"$schema": DIALECT, **Plan.model_json_schema(), "title": "Inferometer plan"}
