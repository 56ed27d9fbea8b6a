#!/bin/sh
# isolated.sh COMMAND...: in a network of its own, where a real API server finds pods at 10.244.0.0/16: it passes nothing
# on to loopback addresses. Nothing on this machine is changed, and no root is needed.
exec unshare -rnm sh -c 'ip link set lo up && ip addr add 10.244.0.1/16 dev lo && exec "$@"' isolated "$@"
