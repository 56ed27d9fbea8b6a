"""Runs in other tools' formats, in both directions, and other tools' load generators."""
