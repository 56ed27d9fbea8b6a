"""One module per API: how its requests are written and what its answers mean. `wire.api` has the registry."""
