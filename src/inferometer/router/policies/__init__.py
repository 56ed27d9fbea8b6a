"""The routing policies, by family. `router.policy` has the registry and the interface."""
