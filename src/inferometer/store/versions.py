"""Versions as people compare them: 0.10 comes after 0.9, a release candidate before its release, a patch after it."""

import re

Version = tuple[tuple[int, ...], int, int]  # the release without trailing zeros, its stage, the number of that

_STAGES = {"dev": 0, "a": 1, "alpha": 1, "b": 2, "beta": 2, "rc": 3, "": 4, "post": 5}
_STAGE = "|".join(sorted(filter(None, _STAGES), reverse=True))
_VERSION = re.compile(rf"v?(\d+(?:\.\d+)*)(?:[._-]?({_STAGE})[._-]?(\d*))?(?:\.dev\d+)?(?:\+.*)?", re.IGNORECASE)


def version_of(text: str) -> Version | None:
    """None where it does not look like one: a commit, a date, a word. What was built (`+cu128`) does not count."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    release, stage, number = match.groups()
    parts = [int(part) for part in release.split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts), _STAGES[(stage or "").lower()], int(number or 0)
