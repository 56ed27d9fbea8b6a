"""Where shards run: processes of this machine, a Ray cluster, Kubernetes pods. Worker i of k needs only (plan, i, k,
start)."""
