"""The API's own reference as a plain page, made from its OpenAPI document: nothing is loaded from elsewhere."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>API · Inferometer</title><link rel="icon" href="data:,"><link rel="stylesheet" href="/assets/style.css">
<link rel="stylesheet" href="/assets/pages.css"><script src="/assets/theme.js" defer></script></head>
<body><main class="wrap"><header class="top"><h1>JSON API</h1>
<button type="button" data-toggle-theme>Light or dark</button></header>
"""


def reference_page(openapi: Mapping[str, Any]) -> str:
    about = escape(openapi["info"].get("description", ""))
    intro = f'<p>{about} <a href="/api/openapi.json">OpenAPI</a> · <a href="/">back to the runs</a></p>'
    groups: dict[str, list[str]] = {}
    for group, text in _operations(openapi):
        groups.setdefault(group, []).append(text)
    body = "".join(f"<h2>{escape(group)}</h2>{''.join(texts)}" for group, texts in groups.items())
    return f"{_HEAD}{intro}{body}</main></body></html>"


def _operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for path, methods in openapi["paths"].items():
        for method, said in methods.items():
            heading = f"<h3><code>{method.upper()} {escape(path)}</code></h3>"
            about = f"<p>{escape(said.get('description') or said.get('summary') or '')}</p>"
            yield (said.get("tags") or ["other"])[0], heading + about + _parameters(said.get("parameters") or [])


def _parameters(parameters: list[Mapping[str, Any]]) -> str:
    if not parameters:
        return ""
    rows = "".join(_parameter(each) for each in parameters)
    return f'<div class="scroll"><table class="facts"><tbody>{rows}</tbody></table></div>'


def _parameter(said: Mapping[str, Any]) -> str:
    schema = said.get("schema") or {}
    default = schema.get("default")
    notes = [said.get("description") or "", "needed" if said.get("required") and said["in"] != "path" else ""]
    notes += [f"default {default}"] if default not in (None, "", []) else []
    text = escape(" ".join(note for note in notes if note))
    return f"<tr><td><code>{escape(said['name'])}</code></td><td>{text}</td></tr>"
