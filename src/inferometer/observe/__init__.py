"""Samplers that run beside the load: the load generator itself, and the host."""
