"""A simulated inference engine, in virtual time or behind a real HTTP server that logs the true times."""
