"""One module per engine, with an `Engine` that contains everything known about it. The registry is in `plan.server`."""
