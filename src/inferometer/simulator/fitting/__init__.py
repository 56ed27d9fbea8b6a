"""A model of a measured server: its steps read from records, the terms of a step fitted to them, and its file."""
