"""Runs in other forms: what a plan's `outputs` ask for; other tools' formats will join."""
