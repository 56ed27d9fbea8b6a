"""What is kept of a run: records of requests, samples, the append-only log and its columnar form."""
