"""Runs on disk, and the index that answers questions about them."""
