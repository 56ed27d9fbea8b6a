"""Inferometer measures LLM inference: a plan is driven at a target, every instant is recorded, numbers carry their
error, and the run is kept.
"""

__version__ = "0.1.0"
