"""Writes YAML that our loader reads back: the dumper of plans, experiments and files for other tools."""

import re
from typing import Any

import yaml

from inferometer.documents.yaml_text import FLOAT, INT


class Dumper(yaml.SafeDumper):
    """Writes text that our loader reads back, with quotes where YAML 1.1 or 1.2 would read another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None  # PyYAML quotes text that a block cannot hold
    if INT.fullmatch(text) or FLOAT.fullmatch(text):
        style = "'"
    if re.search("[\r\x85\u2028\u2029\ufeff]", text):  # other line breaks come back as spaces
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


Dumper.add_representer(str, _represent_text)
