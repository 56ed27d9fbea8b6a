"""The routing policies, by family. `router.policy` has the registry and what all of them are."""
