"""Runs as CI shows them: a step summary, outputs, annotations, JUnit XML, GitLab metrics, plain text."""
