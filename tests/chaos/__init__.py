"""Attacks on the real command line from the outside; `python -m tests.chaos`, see docs/concepts/robustness.md."""
