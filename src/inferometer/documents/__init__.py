"""Reads files from outside, within limits: bytes, text, YAML and JSON. The callers interpret them."""
