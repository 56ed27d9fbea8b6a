"""Where shards run. Worker i of k needs only (plan, i, k, start)."""
