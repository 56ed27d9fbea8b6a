"""One module per engine: how it is launched. `target.launch` has the registry."""
