"""Samplers that run during the load: GPUs, Prometheus endpoints, the host and the load generator itself; and the
checks of `inferometer doctor`."""
