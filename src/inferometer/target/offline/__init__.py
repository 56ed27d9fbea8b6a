"""Engines that run in this process, without a server: batches of prompts through them, timed."""
