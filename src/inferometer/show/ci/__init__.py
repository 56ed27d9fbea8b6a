"""Runs in the formats of CI: a step summary, outputs, annotations, JUnit XML, GitLab metrics, plain text."""
