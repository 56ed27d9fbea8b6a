"""Kubernetes: the connection to a cluster, the objects that we make there, and what is done with them."""
