"""Empties a server's prefix cache between runs, where the engine offers it, and says whether that worked."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from inferometer.errors import TargetError
from inferometer.plan.model import Target
from inferometer.target.ask import Asker
from inferometer.target.launch import Launch


@dataclass(frozen=True, slots=True)
class Reset:
    """What became of it: `done` is None where there was nothing to ask."""

    done: bool | None
    note: str


def reset_prefix_cache(launch: Launch, target: Target) -> Reset:
    """Ask each path that may do it, until one does."""
    if not launch.resets:
        return Reset(
            None, f"the prefix cache was not reset: {launch.reset_hint or 'the engine offers no such request'}"
        )
    asker = Asker(target, launch.url)
    below = urlsplit(launch.url).path.rstrip("/")
    refusals = []
    for path in launch.resets:
        refusal = _ask(asker, below + path)
        if refusal is None:
            return Reset(True, f"the prefix cache was reset (POST {path})")
        refusals.append(f"POST {path} {refusal}")
    hint = f"; {launch.reset_hint}" if launch.reset_hint else ""
    return Reset(False, f"the prefix cache was not reset: {', '.join(refusals)}{hint}")


def _ask(asker: Asker, path: str) -> str | None:
    """None where it did it, else what came back."""
    try:
        status = asker.post(path).status
    except TargetError as error:
        return error.message
    return None if 200 <= status < 300 else f"answered {status}"
