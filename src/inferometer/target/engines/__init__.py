"""One module per engine: an `Engine` with all that is known of it. `plan.server` has the registry."""
