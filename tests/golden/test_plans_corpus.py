"""Public plans and commands of other tools: how many are understood, and that none is read wrongly."""

import os
from collections import Counter
from pathlib import Path

import pytest

from inferometer.plan.foreign.explain import audit

PLANS = Path(os.environ.get("INFEROMETER_DATA", "")) / "plans"
LEAST = 0.95  # of the plans and commands; what is missing is listed in docs/guides/plans-of-other-tools.md


@pytest.mark.skipif(not PLANS.is_dir() or "INFEROMETER_DATA" not in os.environ, reason="needs INFEROMETER_DATA")
def test_public_plans_are_understood_and_none_wrongly() -> None:
    findings = list(audit(PLANS))
    counts = Counter(finding.status for finding in findings)
    assert [finding for finding in findings if finding.status == "wrong"] == []
    assert counts["understood"] >= LEAST * (len(findings) - counts["no plan"]), counts
