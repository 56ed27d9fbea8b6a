"""Runs on disk, and the index that answers queries about them."""
