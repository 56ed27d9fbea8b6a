"""Kubernetes: the connection to a cluster, the objects that we create there, and collecting the results."""
