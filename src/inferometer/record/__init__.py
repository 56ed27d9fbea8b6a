"""What a run consists of: records of requests, samples, the append-only log and its columns; summary, verdict and
environment as types."""
