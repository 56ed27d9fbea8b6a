"""Reads files that others wrote, within limits: bytes, text, YAML and JSON. Their meaning is left to the callers."""
