"""Routing of requests over replicas: policies (pure), the prefix tree they use, and the streaming proxy."""
