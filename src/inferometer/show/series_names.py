"""What a series of runs is called where several are shown together: the name that a person gave its plan, then only
what differs between them, in words: `512 in, 128 out, 20 req/s Poisson`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from inferometer.judge.identity import identity
from inferometer.record.run import Run
from inferometer.record.subject import engine_words
from inferometer.store.entry import flat

MOST_SETTINGS = 3  # that tell series apart whose words are the same
UNNAMED = "all runs"
_IN_WORDS = ("kind", "workload.", "load.", "target.", "asked.", "model", "engine", "traffic[")  # of a run's identity
_NO_NAMES = ("type", "name")  # ends of paths that say nothing by themselves


def series_names(runs: Mapping[str, Run], versions: bool = True) -> dict[str, str]:
    """By the keys of `runs`. Without `versions`, the engine's version is no part of a name: a line of history goes on
    through an upgrade."""
    names = _differing({key: _facets(run, versions) for key, run in runs.items()})
    for group in _alike(names):
        settings = _differing_settings({key: runs[key] for key in group})
        names |= {key: ", ".join(filter(None, (names[key], settings[key]))) for key in group}
    return _numbered({key: name or UNNAMED for key, name in names.items()})


def short_model(model: str | None) -> str:
    """`meta-llama/Llama-3.1-8B` without its owner."""
    return model.rstrip("/").rpartition("/")[2] if model else ""


def hardware_words(run: Run) -> str:
    """Accelerators, else what the run calls its hardware, else the processor of this machine where the server is."""
    subject, machine = run.subject, run.environment.machine
    own = machine.cpu if machine and machine.cpu and not subject.hosts_elsewhere else ""
    return subject.accelerators_text or subject.hardware or own


def stack_text(run: Run) -> str:
    """`Llama-3.1-8B · vLLM 0.24.0 · 2 x NVIDIA H200`, as far as it is known."""
    return " · ".join(filter(None, (short_model(run.subject.model), run.subject.engine_text, hardware_words(run))))


def _facets(run: Run, versions: bool) -> list[str]:
    subject = run.subject
    engine = engine_words(subject.engine, subject.engine_version if versions else None)
    model, hardware = short_model(subject.model), hardware_words(run)
    return [subject.name or "", model, engine, hardware, subject.workload, subject.load]


def _differing(facets: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Names alone where every series has its own; else all facets that differ."""
    names = [parts[0] for parts in facets.values()]
    if all(names) and len(set(names)) == len(names) > 1:
        return {key: parts[0] for key, parts in facets.items()}
    varied = [at for at, column in enumerate(zip(*facets.values(), strict=True)) if len(set(column)) > 1]
    return {key: ", ".join(parts[at] for at in varied if parts[at]) for key, parts in facets.items()}


def _alike(names: Mapping[str, str]) -> Iterator[list[str]]:
    """Groups of keys that have one name."""
    for name, count in Counter(names.values()).items():
        if count > 1:
            yield [key for key, own in names.items() if own == name]


def _differing_settings(runs: Mapping[str, Run]) -> dict[str, str]:
    """`speed 4`: what differs in their plans, by the last part of its path."""
    settings = {key: _settings(run) for key, run in runs.items()}
    paths = dict.fromkeys(path for own in settings.values() for path in own)
    varied = [path for path in paths if len({own.get(path) for own in settings.values()}) > 1][:MOST_SETTINGS]
    return {
        key: ", ".join(f"{_last(path)} {own[path]}" for path in varied if path in own) for key, own in settings.items()
    }


def _settings(run: Run) -> dict[str, str]:
    parts = identity(run).parts
    flattened = flat(parts["workload"]) | flat(parts["stack"])
    paths = (path for path in flattened if not path.startswith(_IN_WORDS) and _last(path) not in _NO_NAMES)
    return {path: flattened[path] for path in paths}


def _last(path: str) -> str:
    return path.rpartition(".")[2].replace("_", " ")


def _numbered(names: Mapping[str, str]) -> dict[str, str]:
    """Series of one name would be one line: the second has a number."""
    seen: Counter[str] = Counter()
    distinct = {}
    for key, name in names.items():
        seen[name] += 1
        distinct[key] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return distinct
