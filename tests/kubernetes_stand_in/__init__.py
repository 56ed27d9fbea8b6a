"""A stand-in for a Kubernetes cluster, for tests: an API in memory behind real HTTP, its controllers, and a node whose
pods are local processes. The node also serves a real control plane, on which `make test-kubernetes` runs the same
tests."""
