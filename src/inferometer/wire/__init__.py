"""The network: HTTP client with its timestamps, a small HTTP server, server-sent events, and the APIs' requests and
events."""
