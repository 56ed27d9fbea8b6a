"""Bytes: the HTTP client and its stamps, a small HTTP server, server-sent events, the APIs' bodies and events."""
