"""What to send: a workload is a function from an index to a session of requests."""
