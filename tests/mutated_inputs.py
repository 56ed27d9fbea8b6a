"""Files and command lines that nobody meant: seeded mutations of every example plan, experiment, foreign plan, command
line and result that the project knows, and what becomes of them through the command line, in this process.

    python tests/mutated_inputs.py 10000 [SEED]     prints a table of outcomes, and what must not be
"""

import faulthandler
import gzip
import json
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, Literal

import yaml

ROOT = Path(__file__).parents[1]
Kind = Literal["plan", "result", "command", "workload", "own"]
KINDS: tuple[Kind, ...] = ("plan", "result", "command", "workload", "own")
LIMIT_S = 90.0  # of one input, generous: the machine may be busy
LARGEST = 300_000  # bytes of a seed: larger ones have nothing that smaller ones have not, and take long to mutate
NUMBERS = (
    *(0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400, -(10**400)),
    *(0.0, -0.0, 0.5, -1.5, 1e-320, 1e15, 1e30, 1e308, float("inf"), float("-inf"), float("nan")),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "0",
        "-1",
        "1e400",
        "9" * 400,
        "9" * 5000,
        "inf",
        "nan",
        "null",
        "true",
        "1h",
        "1e9d",
        "-5s",
        "1e12",
    ),
    *(
        "1-1e12",
        "5-1",
        "2k",
        "ttft p99 < 1e400s",
        "\u202e",
        "\x00",
        "\x1b[31m",
        "a\nb",
        "a\r\nb",
        "\ud83d\ude00",
        "\ud800",
        "\udcff",
    ),
    *("../../etc/passwd", "/dev/zero", "/dev/null", "/", ".", "http://", "http://[", "http://x:99999", "file:///etc"),
    *("zipf", "lognormal", "synthetic", "{prompt}", "${HOME}", "REPLACE_ENV_X", "x" * 100_000, "%s%n", "2024-01-01"),
    *("1:30", "010", "0x1F", "!!binary x", "*a", "&a", "<<", "kind=sweep", "[" * 500, "{" * 500, "(" * 200),
)
STRUCTURES: tuple[Any, ...] = (
    *([], {}, [[]], {"": None}, [None], {"type": []}, {"type": {}}, [1, "x", None, {}], {"x": {"x": {"x": 1}}}),
    *({"alpha": 1.1, "max": 10**12}, {"type": "lognormal", "mean": 1, "std": 1e6}, {"min": 1, "max": 10**15}),
    *(
        {"mean": 1e300, "std": 1e300},
        {"parts": []},
        {"values": []},
        {"values": [1], "weights": [0]},
        {"file": "/dev/zero"},
    ),
    *({1: 2}, {None: 1}, {True: 1}, {"a": float("nan")}),
)
ODD_VALUES: tuple[Any, ...] = (None, True, False, *NUMBERS, *TEXTS, *STRUCTURES)
ODD_YAML = (
    *("!!python/object/apply:os.system [x]", "!!binary YWJj", "!!timestamp 2024-01-01", "!!set {a, b}", "!custom x"),
    *("&a [*a]", "&a {x: *a}", "*nowhere", "!!int x", "!!float y", "!!bool maybe", "!!null x", "!!omap [a: 1]"),
    *(
        "{<<: 1}",
        "{<<: [1]}",
        "? [1, 2]\n: 3",
        "{a: 1, a: 2}",
        "[" * 400,
        "{a: " * 400,
        "'unclosed",
        '"\\xzz"',
        "|",
        "> x",
    ),
    *("%YAML 9.9\n---\na", "\t", "@x", "`x`", "- - - - x", "1e99999", "0o9", "0xFFFFFFFFFFFFFFFFFFFF", ".inf", ".nan"),
)
ODD_BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3\x28",
    b"\r",
    b"\x1b[2J",
    b"\xed\xa0\x80",
    b"\x85",
    b"\n---\n",
)


@dataclass(frozen=True, slots=True)
class Seed:
    """Something that is right, to be made wrong."""

    name: str  # of the file, with its ending; of a command line its first words
    kind: Kind
    content: bytes


@dataclass(frozen=True, slots=True)
class Input:
    """One input: the file's name and bytes (a command line: its words, one a line), and how it was made."""

    name: str
    kind: Kind
    content: bytes
    how: str


@dataclass(slots=True)
class Outcome:
    """What became of one input."""

    made: Input
    argument: str  # the command that read it
    exit_code: int
    took_s: float
    text: str

    @property
    def complaints(self) -> list[str]:
        """What must not be: a mistake of ours, an input that takes too long, an error that names no file."""
        found = []
        if self.exit_code not in (0, 1, 2, 3, 4):
            found.append(f"exit code {self.exit_code}")
        if self.took_s > LIMIT_S:
            found.append(f"took {self.took_s:.1f} s")
        errors = [line for line in self.text.splitlines() if line.startswith("error: ")]
        if self.exit_code and not errors:
            found.append("no error message")
        reads_it = self.argument in ("plan check", "import", "predict", "startup", "tokenizer")  # others go on to more
        if reads_it and errors and not any(self.made.name in line for line in errors):
            found.append("no error names the file")
        return found


@dataclass(slots=True)
class Tally:
    """Counts of all outcomes, and those that must not be."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[Outcome] = field(default_factory=list)
    slowest_s: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.counts[outcome.argument, outcome.exit_code] += 1
        self.slowest_s = max(self.slowest_s, outcome.took_s)
        if outcome.complaints:
            self.wrong.append(outcome)


# -- seeds -----------------------------------------------------------------------------------------------------


@cache
def seeds() -> tuple[Seed, ...]:
    """All that there is to mutate: ours, and where the data of other tools is at hand, theirs."""
    found = [*_files(ROOT / "examples", "plan"), *_files(ROOT / "src/inferometer/plan/profiles", "plan"), *_docs()]
    if folder := os.environ.get("INFEROMETER_DATA"):
        data = Path(folder)
        found += _files(data / "plans", "plan")
        for part in ("results", "vllm-0.24-h200", "vllm-0.24-h200-sweep"):
            found += _files(data / part, "result")
        found += [*_files(data / "traces", "workload"), *_files(data / "conversations", "workload")]
        found += _commands(data / "plans")
    found += [*_files(ROOT / "tests/data", "result"), *_results_by_hand(), *_exports()]
    found += [*_files(ROOT / "examples/data", "workload"), *_own()]
    unique = {(seed.kind, seed.content): seed for seed in found if 0 < len(seed.content) <= LARGEST}
    return tuple(seed for seed in unique.values() if seed.kind != "result" or _is_result(seed))


def _is_result(seed: Seed) -> bool:
    from inferometer.errors import DataError
    from inferometer.exchange.importing.recognise import parse, recognise

    try:
        return bool(recognise(parse(seed.name, seed.content)))
    except DataError:
        return False


def _results_by_hand() -> Iterator[Seed]:
    """Those of the tests of importing: one of nearly every format."""
    sys.path.insert(0, str(ROOT / "tests" / "unit"))
    import imported_files
    import imported_results

    for module in (imported_files, imported_results):
        for name, value in vars(module).items():
            if name.isupper() and isinstance(value, str | dict | list):
                text = value if isinstance(value, str) else json.dumps(value)
                form = "json" if not isinstance(value, str) else "csv" if value.count(",") > 5 else "txt"
                yield Seed(f"{name.lower()}.{form}", "result", text.encode())
    for tool in ("vllm", "guidellm", "inference-perf"):
        report = yaml.safe_dump(imported_files.report_v0_1(tool, "ms"))
        yield Seed(f"report_{tool}.yaml", "result", report.encode())


def _exports() -> Iterator[Seed]:
    """What our own export writes, as far as it is text."""
    import exported_runs

    for name in ("json", "vllm", "llm-d", "nm-vllm", "ci-bench", "ray-sweep", "inferx", "csv"):
        try:
            written = exported_runs.made(name, exported_runs.open_run())
        except Exception:
            continue
        for file, content in written.items():
            yield Seed(Path(file).name, "result", content)


def _files(folder: Path, kind: Kind) -> Iterator[Seed]:
    endings = {"plan": (".yaml", ".yml", ".json", ".in"), "result": (".json", ".jsonl", ".csv", ".yaml", ".yml")}
    wanted = endings.get(kind, (".json", ".jsonl", ".csv", ".txt", ".gz"))
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        if path.is_file() and path.name.endswith(wanted) and not (kind == "plan" and "data" in path.parts[-2:-1]):
            name = path.name if path.name != "plan.in" else "plan.yaml.in"
            content = path.read_bytes()
            if kind == "workload" and len(content) > LARGEST and path.suffix != ".gz":
                content = content[:20_000]
            yield Seed(name, kind, content)


def _docs() -> Iterator[Seed]:
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for at, block in enumerate(re.findall(r"```yaml\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)):
            yield Seed(f"{path.stem}-{at}.yaml", "plan", block.encode())


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts:
- name: c
  context: {cluster: k, user: u, namespace: n}
clusters:
- name: k
  cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}
users:
- name: u
  user:
    token: abc
    exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, args: [a], env: [{name: X, value: y}]}
"""
SCENARIO = """
export LLMDBENCH_DEPLOY_MODEL_LIST=a/b
export LLMDBENCH_X="${LLMDBENCH_DEPLOY_MODEL_LIST}"
LLMDBENCH_HARNESS_NAME=inference-perf
"""
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"},
}


def _own() -> Iterator[Seed]:
    """Files of other kinds that a command reads."""
    from inferometer.conduct.fit import preset
    from inferometer.simulator.fitting.aiconfigurator import accelerator_named, shape_named
    from inferometer.simulator.fitting.server_model import model_document

    model = preset(accelerator_named("h100"), shape_named("llama-3.1-8b"), 1)
    yield Seed("model.yaml", "own", model_document(model).encode())
    yield Seed("kubeconfig.yaml", "own", KUBECONFIG.encode())
    yield Seed("scenario.sh", "own", SCENARIO.encode())
    yield Seed("tokenizer.json", "own", json.dumps(TOKENIZER).encode())
    ranks = b"".join(b64encode(bytes([at])) + b" %d\n" % at for at in range(256))
    yield Seed("qwen.tiktoken", "own", ranks)
    for log in sorted((ROOT / "tests/data").glob("*.log")):
        yield Seed(log.name, "own", log.read_bytes())
        yield Seed(f"{log.stem}.gz", "own", gzip.compress(log.read_bytes()))


def commands_for(path: Path) -> Iterator[tuple[str, list[str]]]:
    """What reads a file of ours, by its name."""
    load = ["--requests", "5", "--rate", "20"]
    match path.suffix:
        case ".log" | ".gz":
            yield "startup", ["startup", "--log", str(path)]
        case ".sh":
            yield "scenario", ["k8s", "run", "-c", str(path), "--dry-run"]
        case ".tiktoken" | ".json":
            yield "tokenizer", ["run", "--dry-run", "--tokenizer", str(path)]
        case _ if path.stem == "kubeconfig":
            yield "kubeconfig", ["k8s", "run", "--list-endpoints", "--kubeconfig", str(path)]
        case _:
            yield "predict", ["predict", "--model-file", str(path), *load]
            yield "simulate", ["simulate", *load, "--set", f"server.args.model_file={path}"]


def _commands(folder: Path) -> Iterator[Seed]:
    for path in sorted(folder.glob("*-commands.txt")):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in text.splitlines():
            try:
                words = shlex.split(line, comments=True)
            except ValueError:
                continue
            if len(words) > 2:
                yield Seed(" ".join(words[:3]), "command", "\n".join(words).encode())


# -- mutations -------------------------------------------------------------------------------------------------


def inputs(seed: int, count: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Input]:
    """So many mutated inputs, always the same for a seed. Plans and results come more often than the others."""
    draw = random.Random(seed)
    known = [each for each in seeds() if each.kind in kinds]
    by_kind = {kind: [each for each in known if each.kind == kind] for kind in kinds}
    weights = {"plan": 6, "result": 4, "command": 2, "workload": 1, "own": 3}
    present = [kind for kind in kinds if by_kind[kind]]
    for _ in range(count):
        kind = draw.choices(present, [weights[each] for each in present])[0]
        yield mutated(draw.choice(by_kind[kind]), draw)


def mutated(seed: Seed, draw: random.Random) -> Input:
    """One mutation or several of a seed, in its structure or in its bytes."""
    if seed.kind == "command":
        return _mutated_command(seed, draw)
    content, made = seed.content, []
    for _ in range(draw.choice((1, 1, 1, 1, 2, 3))):
        way = draw.choices((_of_structure, _of_text, _of_bytes), (6, 3, 2))[0]
        content, how = way(seed.name, content, draw)
        made.append(how)
    return Input(seed.name, seed.kind, content, ", ".join(made))


def _mutated_command(seed: Seed, draw: random.Random) -> Input:
    words = seed.content.decode().split("\n")
    for _ in range(draw.choice((1, 1, 2, 3))):
        values = [at for at in range(1, len(words)) if words[at - 1].startswith("-") and not words[at].startswith("-")]
        at = draw.choice(values) if values and draw.random() < 0.8 else draw.randrange(len(words))
        match draw.choice(("value", "value", "value", "delete", "double", "swap")):
            case "value":
                odd = draw.choice((*TEXTS, *(dumped(each) for each in STRUCTURES), *map(dumped, NUMBERS)))
                words[at] = odd.replace("\x00", "").replace("\n", " ")
            case "delete" if len(words) > 2:
                del words[at]
            case "double":
                words.insert(at, words[at])
            case "swap":
                other = draw.randrange(len(words))
                words[at], words[other] = words[other], words[at]
    return Input(seed.name, "command", "\n".join(words).encode("utf-8", "replace"), "words")


def dumped(value: Any) -> str:
    if isinstance(value, int) and abs(value) > 10**300:
        return ("-" if value < 0 else "") + "1" + "0" * 400
    try:
        return json.dumps(value)
    except TypeError:
        return str(value)


def _of_structure(name: str, content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """A value replaced, deleted, repeated, wrapped or renamed, wherever it is."""
    form = _form(name, content)
    try:
        value = _parsed(form, content)
    except (ValueError, yaml.YAMLError, RecursionError):
        return _of_bytes(name, content, draw)
    places = list(_places(value))
    if not places:
        return _of_bytes(name, content, draw)
    path = draw.choice(places)
    how, change = draw.choice(_CHANGES)
    changed = _changed(value, path, lambda there: change(there, draw))
    if how == "key":
        changed = _renamed(value, path, draw)
    return _written(form, changed, content), f"{how} at {'.'.join(map(str, path))[:60]}"


def _replace(_there: Any, draw: random.Random) -> Any:
    return draw.choice(ODD_VALUES)


def _repeat(there: Any, draw: random.Random) -> Any:
    return [there] * draw.choice((0, 2, 3, 200))


def _deepen(there: Any, draw: random.Random) -> Any:
    for _ in range(draw.choice((1, 5, 90, 300))):
        there = [there] if draw.random() < 0.5 else {"x": there}
    return there


def _scale(there: Any, draw: random.Random) -> Any:
    if isinstance(there, bool) or not isinstance(there, int | float):
        return draw.choice(NUMBERS)
    try:
        return there * draw.choice((-1, 10**6, 10**15, 10**30, 0.1, 1e300))
    except OverflowError:
        return 10**30


_CHANGES: tuple[tuple[str, Callable[[Any, random.Random], Any]], ...] = (
    ("replaced", _replace),
    ("replaced", _replace),
    ("replaced", _replace),
    ("scaled", _scale),
    ("deleted", lambda _there, _draw: _DELETED),  # type: ignore[has-type]
    ("repeated", _repeat),
    ("deepened", _deepen),
    ("as text", lambda there, _draw: str(there)[:200]),
    ("key", lambda there, _draw: there),
)
_DELETED = object()


def _of_text(name: str, content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """YAML and JSON that no writer would make: tags, anchors, a line twice or gone or indented otherwise."""
    lines = content.decode("utf-8", "replace").split("\n")
    at = draw.randrange(len(lines))
    key, colon, _ = lines[at].partition(":")
    match draw.choice(("value", "value", "tag", "double", "delete", "indent", "anchor", "bomb")):
        case "value" if colon:
            lines[at] = f"{key}: {draw.choice(ODD_YAML)}"
        case "tag" if colon:
            tag = draw.choice(("int", "str", "null", "map", "seq", "binary", "x"))
            lines[at] = f"{key}: !!{tag}{lines[at][len(key) + 1 :]}"
        case "double":
            lines.insert(at, lines[at])
        case "delete":
            del lines[at]
        case "indent":
            lines[at] = draw.choice(("  ", "\t", "    ", "- ", "? ", ", ", "} ", "] ")) + lines[at]
        case "anchor" if colon and not lines[at].rstrip().endswith((",", "{", "[")):
            lines[at] = f"{key}: &self {draw.choice(('[*self]', '{x: *self}', '[1, [*self, 2]]'))}"
        case "bomb":
            lines.insert(at, _bomb())
        case _:
            lines[at] = lines[at][::-1]
    return "\n".join(lines).encode("utf-8", "replace"), f"line {at + 1}"


def _bomb() -> str:
    """A billion values in ten lines."""
    first = 'bomb0: &b0 ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x"]'
    later = [f"bomb{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join([first, *later])


def _of_bytes(_name: str, content: bytes, draw: random.Random) -> tuple[bytes, str]:
    content = content or b"a: 1\n"
    at = draw.randrange(len(content))
    match draw.choice(("flip", "cut", "insert", "swap", "double", "utf-16", "empty", "tail")):
        case "flip":
            changed = bytearray(content)
            for _ in range(draw.choice((1, 3, 20))):
                changed[draw.randrange(len(changed))] = draw.randrange(256)
            return bytes(changed), "bytes flipped"
        case "cut":
            return content[:at], "cut"
        case "insert":
            return content[:at] + draw.choice(ODD_BYTES) + content[at:], "bytes inserted"
        case "swap":
            return content[at:] + content[:at], "turned"
        case "double":
            return content + content, "twice"
        case "utf-16":
            return content.decode("utf-8", "replace").encode("utf-16"), "as UTF-16"
        case "empty":
            return draw.choice((b"", b"\n", b"null", b"[]", b"{}", b"0", b"---", b"\x1f\x8b\x08\x00broken")), "emptied"
    return content + draw.choice(ODD_BYTES) * 50, "tail"


def _form(name: str, content: bytes) -> str:
    if name.endswith(".csv"):
        return "csv"
    if name.endswith(".jsonl"):
        return "jsonl"
    return "json" if content.lstrip()[:1] in (b"{", b"[") else "yaml" if not name.endswith((".txt", ".gz")) else "text"


def _parsed(form: str, content: bytes) -> Any:
    text = content.decode("utf-8")
    match form:
        case "json":
            return json.loads(text)
        case "jsonl":
            return [json.loads(line) for line in text.splitlines()[:200] if line.strip()]
        case "csv":
            return [line.split(",") for line in text.splitlines()[:500]]
        case "yaml":
            from inferometer.documents.yaml_text import yaml_value  # PyYAML's own would write out a bomb

            return yaml_value(text)[0]
    raise ValueError(form)


def _written(form: str, value: Any, before: bytes) -> bytes:
    """Back into bytes; what a format cannot say stays as it was."""
    try:
        match form:
            case "json":
                return _big(json.dumps(_plain(value))).encode("utf-8", "replace")
            case "jsonl":
                rows = value if isinstance(value, list) else [value]
                return _big("\n".join(json.dumps(_plain(row)) for row in rows)).encode("utf-8", "replace")
            case "csv":
                rows = value if isinstance(value, list) else [[value]]
                return "\n".join(
                    ",".join(map(_dumped_cell, row if isinstance(row, list) else [row])) for row in rows
                ).encode("utf-8", "replace")
        return _big(yaml.dump(_plain(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True)).encode(
            "utf-8", "replace"
        )
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        return before + b"\n{"


_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_BIG = "a number of four hundred digits"


def _plain(value: Any) -> Any:
    """Python refuses to write numbers of many digits; a name stands for them until the text is there."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return _BIG if isinstance(value, int) and abs(value) > 10**300 else value


def _big(text: str) -> str:
    return text.replace(f'"{_BIG}"', "1" + "0" * 400).replace(_BIG, "1" + "0" * 400)


def _dumped_cell(cell: Any) -> str:
    return cell if isinstance(cell, str) else dumped(cell)


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if len(above) > 12:
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    for step, each in entries:
        yield (*above, step)
        yield from _places(each, (*above, step))


def _changed(value: Any, path: Sequence[Any], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(value)
    if isinstance(value, dict):
        made = {key: (_changed(each, path[1:], change) if key == path[0] else each) for key, each in value.items()}
        return {key: each for key, each in made.items() if each is not _DELETED}
    made_list = [_changed(each, path[1:], change) if at == path[0] else each for at, each in enumerate(value)]
    return [each for each in made_list if each is not _DELETED]


def _renamed(value: Any, path: Sequence[Any], draw: random.Random) -> Any:
    odd = draw.choice(("", "x", "type", "<<", "load", 1, None, True, "a.b", "\x1b", "x" * 5000))

    def rename(section: Any) -> Any:
        if not isinstance(section, dict):
            return odd
        return {(odd if key == path[-1] else key): each for key, each in section.items()}

    return _changed(value, path[:-1], rename)


# -- what becomes of them --------------------------------------------------------------------------------------


class Bench:
    """A folder of its own in which inputs are tried, through the command line in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "store"

    def outcomes(self, made: Input) -> Iterator[Outcome]:
        """By every command that reads such an input."""
        if made.kind == "command":
            words = [word for word in made.content.decode("utf-8", "replace").split("\n") if "\x00" not in word]
            yield self._tried(made, "plan show", ["plan", "show", "--", *words])
            return
        path = self.folder / made.name
        path.write_bytes(made.content)
        match made.kind:
            case "plan":
                yield self._tried(made, "plan check", ["plan", "check", str(path)])
                yield self._tried(made, "run --dry-run", ["run", str(path), "--dry-run"])
            case "result":
                yield self._tried(made, "import", ["import", str(path), "--store", str(self.store)])
            case "workload":
                plan = ["--set", f"workload={{path: {json.dumps(str(path))}}}"]
                yield self._tried(made, "workload --dry-run", ["run", "--dry-run", *plan])
            case "own":
                for argument, words in commands_for(path):
                    yield self._tried(made, argument, words)
        path.unlink()

    def _tried(self, made: Input, argument: str, words: list[str]) -> Outcome:
        from inferometer.cli import execute

        begun_at = time.monotonic()
        faulthandler.dump_traceback_later(LIMIT_S, exit=False)
        with _Captured() as text:
            code = execute(words)
        faulthandler.cancel_dump_traceback_later()
        return Outcome(made, argument, code, time.monotonic() - begun_at, text())


class _Captured:
    """Standard output and error as one text."""

    def __enter__(self) -> Callable[[], str]:
        self._raw = BytesIO()
        self._text = TextIOWrapper(self._raw, encoding="utf-8", errors="replace")
        self._parts = redirect_stdout(self._text), redirect_stderr(self._text)
        for part in self._parts:
            part.__enter__()
        return self._value

    def _value(self) -> str:
        self._text.flush()
        return self._raw.getvalue().decode("utf-8", "replace")

    def __exit__(self, *error: Any) -> None:
        for part in reversed(self._parts):
            part.__exit__(*error)


def tried(seed: int, count: int, kinds: Sequence[Kind] = KINDS) -> Tally:
    """So many mutated inputs through the command line. Runs are kept in a folder that is gone afterwards."""
    from inferometer.scale.kubernetes import client as kubernetes

    tally, before = Tally(), Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="mutated-"))
    settings = {"XDG_CACHE_HOME": str(folder / "cache"), "INFEROMETER_STORE": str(folder / "store"), "NO_COLOR": "1"}
    settings |= {
        "HF_HUB_OFFLINE": "1",
        **dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9"),
    }  # no network
    kept = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    os.chdir(folder)
    patience, kubernetes.RETRY_S = kubernetes.RETRY_S, 0.0  # for clusters that are not there
    try:
        bench = Bench(folder)
        for made in inputs(seed, count, kinds):
            for outcome in bench.outcomes(made):
                tally.add(outcome)
    finally:
        kubernetes.RETRY_S = patience
        os.chdir(before)
        for name, value in kept.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def main() -> int:
    count, seed = (int(word) for word in (*sys.argv[1:], "1000", "0")[:2])
    tally = tried(seed, count)
    for (argument, code), number in sorted(tally.counts.items()):
        print(f"{argument:20} exit {code:3} {number:7,}")
    print(f"slowest {tally.slowest_s:.1f} s")
    shapes: Counter[str] = Counter()
    for outcome in tally.wrong:
        told = [line for line in outcome.text.splitlines() if line.startswith("error: ")][:1] or [outcome.text[-200:]]
        shape = f"{outcome.argument}: {outcome.complaints}: {re.sub(r'[0-9]+', '#', told[0])[:160]}"
        shapes[shape] += 1
        if shapes[shape] <= 1:
            print(f"\n{shape}\n  {outcome.made.name}: {outcome.made.how}")
    for shape, number in shapes.most_common():
        print(f"{number:6} {shape}")
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
