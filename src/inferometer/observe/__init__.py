"""Samplers that run during the load: the load generator itself, and the host."""
