"""Files that others wrote, read within bounds: bytes, text, YAML and JSON. What they mean is left to their readers."""
