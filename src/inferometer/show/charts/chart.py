"""`Chart`: a Vega-Lite specification with its name and title; pages and pictures are made from the same one."""

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]


class Cannot(Exception):
    """What a chart needs is not there; the message says what."""


@dataclass(frozen=True, slots=True)
class Chart:
    """`spec` has data, axes and title, but no colours of text and background: these are the theme's."""

    name: str
    title: str  # says what is seen
    spec: Spec

    @property
    def subtitle(self) -> str:
        """Of what and how much of it; may be empty."""
        title = self.spec.get("title")
        said = title.get("subtitle", "") if isinstance(title, dict) else ""
        return " ".join(said) if isinstance(said, list) else str(said)


@dataclass(frozen=True, slots=True)
class Absent:
    """A chart that cannot be made of something, and why."""

    name: str
    title: str
    why: str
