"""Routing of requests over replicas: policies (pure), the prefix tree that they use, and the streaming proxy."""
