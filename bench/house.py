"""Counts over the source: files, lines, functions, annotations that a type checker cannot use, reads by string key.
The table of docs/decisions/the-house.md.

python bench/house.py [--ref COMMIT ...] [--rooms] [--json]
"""

import ast
import io
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from _common import HERE, parser, print_rows

PACKAGE = "inferometer"
MAPPINGS = {"dict", "Mapping", "MutableMapping", "Dict", "defaultdict", "OrderedDict"}
UNTYPED = {"Any", "object"}
WORDS = ("said", "told", "found", "asked", "word", "each", "beside", "stand", "deeds")
_WORD = re.compile(rf"(?:^|_)(?:{'|'.join(WORDS)})s?(?:_|$)|(?:{'|'.join(word.title() for word in WORDS)})s?(?![a-z])")
_HARMLESS = re.compile(r"not_found|keyword|password|_each$|found_by")  # English and the names of others


@dataclass(slots=True)
class Counts:
    """Of one file, or of many."""

    lines: int = 0
    functions: list[int] = field(default_factory=list)
    untyped: int = 0  # `dict[str, Any]` and its like
    aliases: int = 0
    alias_uses: int = 0
    wrappers: int = 0  # classes with nothing but such a dictionary
    keys: list[str] = field(default_factory=list)
    imports: int = 0  # calls of import_module
    inner_imports: int = 0  # import statements inside functions
    words: set[str] = field(default_factory=set)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--ref", action="append", default=[], help="a commit instead of the working tree; repeatable")
    options.add_argument("--rooms", action="store_true", help="untyped annotations and inner imports of each room")
    options.add_argument("--files", action="store_true", help="the same of each file")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = {ref: checkout(ref, Path(folder) / str(at)) for at, ref in enumerate(chosen.ref)}
        trees = trees or {"working tree": HERE.parent / "src" / PACKAGE}
        if chosen.rooms or chosen.files:
            depth = 99 if chosen.files else 1
            rows: list[dict[str, int | float | str]] = [
                row for name, tree in trees.items() for row in by_place(name, tree, depth)
            ]
        else:
            measured = {name: measures(tree) for name, tree in trees.items()}
            labels = next(iter(measured.values()))
            rows = [{"": label, **{name: values[label] for name, values in measured.items()}} for label in labels]
    print_rows(rows, chosen.json)


def checkout(ref: str, into: Path) -> Path:
    archive = subprocess.run(
        ["git", "-C", HERE.parent, "archive", ref, f"src/{PACKAGE}"], check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(into, filter="data")
    return into / "src" / PACKAGE


def measures(tree: Path) -> dict[str, int | float | str]:
    files = all_counts(tree)
    own = {path: counts for path, counts in files.items() if path.name != "__init__.py"}
    lines = [counts.lines for counts in own.values()]
    lengths = [length for counts in files.values() for length in counts.functions]
    keys = Counter(key for counts in files.values() for key in counts.keys)
    return {
        "files": len(files),
        "files without `__init__`": len(own),
        "files under 40 lines": sum(count < 40 for count in lines),
        "modules with one importer": single_importers(tree),
        "lines of a file, median": int(statistics.median(lines)),
        "files over 500 lines": sum(count > 500 for count in lines),
        "lines": sum(counts.lines for counts in files.values()),
        "functions, median and longest": f"{statistics.median(lengths):.0f}, {max(lengths)}",
        "dictionaries of `str` to `Any` or `object`": sum(counts.untyped for counts in files.values()),
        "aliases of such, and their uses": f"{sum(counts.aliases for counts in files.values())}, "
        f"{sum(counts.alias_uses for counts in files.values())}",
        "types with one such dictionary in them": sum(counts.wrappers for counts in files.values()),
        "accesses by string key, and distinct keys": f"{keys.total():,}, {len(keys)}",
        "calls of `import_module`": sum(counts.imports for counts in files.values()),
        "imports inside functions, and those of `cli/`": f"{sum(counts.inner_imports for counts in files.values())}, "
        f"{sum(counts.inner_imports for path, counts in files.items() if path.relative_to(tree).parts[0] == 'cli')}",
        "defined names with a private word": len(set().union(*(counts.words for counts in files.values()))),
    }


def by_place(name: str, tree: Path, depth: int) -> Iterator[dict[str, int | float | str]]:
    places: defaultdict[str, list[Counts]] = defaultdict(list)
    for path, counts in all_counts(tree).items():
        places["/".join(path.relative_to(tree).parts[:depth])].append(counts)
    for place, inside in sorted(places.items(), key=lambda item: -sum(one.untyped for one in item[1])):
        yield {
            "tree": name,
            "place": place,
            "untyped": sum(one.untyped for one in inside),
            "uses of aliases": sum(one.alias_uses for one in inside),
            "accesses by key": sum(len(one.keys) for one in inside),
            "imports inside functions": sum(one.inner_imports for one in inside),
        }


# -- one file ----------------------------------------------------------------------------------------------------------


def all_counts(tree: Path) -> dict[Path, Counts]:
    """Of every file. An alias counts where it is used, also in another module."""
    parsed = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(tree.rglob("*.py"))}
    own = {module_of(path, tree): aliases_in(module) for path, module in parsed.items()}
    known = {path: own[module_of(path, tree)] | imported_aliases(module, own) for path, module in parsed.items()}
    return {path: counts_of(path, parsed[path], known[path], len(own[module_of(path, tree)])) for path in parsed}


def counts_of(path: Path, tree: ast.Module, aliases: set[str], defined: int) -> Counts:
    counts = Counts(lines=path.read_text(encoding="utf-8").count("\n"), aliases=defined)
    for node in ast.walk(tree):
        counts.untyped += is_untyped(node)
        if isinstance(node, ast.Name) and node.id in aliases and isinstance(node.ctx, ast.Load):
            counts.alias_uses += 1
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            counts.functions.append(length_of(node))
            counts.inner_imports += sum(isinstance(inner, ast.Import | ast.ImportFrom) for inner in own_nodes(node))
        if isinstance(node, ast.ClassDef):
            counts.wrappers += is_wrapper(node, aliases)
        if (key := key_in(node)) is not None:
            counts.keys.append(key)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            counts.imports += 1
        counts.words |= {name for name in names_in(node) if _WORD.search(name) and not _HARMLESS.search(name)}
    return counts


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Of a function, without the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
            yield from own_nodes(node)


def length_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without its doc string."""
    body = function.body
    documented = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    first = body[1] if documented else body[0]
    return (function.end_lineno or 0) - first.lineno + 1


def is_untyped(node: ast.AST) -> bool:
    """`dict[str, Any]`, `Mapping[str, object]`, and with keys that are not known either."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
        return False
    values = node.slice.elts[1]
    return last_name(node.value) in MAPPINGS and last_name(values) in UNTYPED


def last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def aliases_in(module: ast.Module) -> set[str]:
    return {name for node in module.body if (name := alias_in(node))}


def imported_aliases(module: ast.Module, own: dict[str, set[str]]) -> set[str]:
    """Those of other modules, under the names that they have here."""
    return {
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module in own
        for alias in node.names
        if alias.name in own[node.module]
    }


def alias_in(node: ast.AST) -> str | None:
    """`Json = dict[str, Any]`, also inside of a union, and `Json = Any`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        name, value = node.targets[0].id, node.value
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        name, value = node.target.id, node.value
        if last_name(node.annotation) != "TypeAlias":
            return None
    else:
        return None
    if last_name(value) in UNTYPED:
        return name
    parts = [part for part in ast.walk(value) if is_untyped(part)]
    return name if parts and isinstance(value, ast.Subscript | ast.BinOp) else None


def is_wrapper(node: ast.ClassDef, aliases: set[str]) -> bool:
    """A class whose only field is such a dictionary."""
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    return len(fields) == 1 and (is_untyped(fields[0].annotation) or last_name(fields[0].annotation) in aliases)


def key_in(node: ast.AST) -> str | None:
    """`x["key"]` and `x.get("key")`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str):
        return None if last_name(node.value) in ("Literal",) else node.slice.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        first = node.args[0]
        return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
    return None


def names_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg


# -- importers ---------------------------------------------------------------------------------------------------------


def single_importers(tree: Path) -> int:
    """Modules that exactly one other imports; packages and what only a registry names are left out."""
    modules = {module_of(path, tree): path for path in tree.rglob("*.py")}
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for imported in imported_by(path):
            if imported in modules and imported != name:
                importers[imported].add(name)
    return sum(len(importers[name]) == 1 for name, path in modules.items() if path.name != "__init__.py")


def module_of(path: Path, tree: Path) -> str:
    parts = path.relative_to(tree.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


if __name__ == "__main__":
    sys.exit(main())
