"""The README is true: its commands run, and its plan is one."""

import re
import shlex
from pathlib import Path

import pytest

import command_line
from inferometer.conduct.instrument import curve_of, keep_curve
from inferometer.plan.reading import mapping_in, plan_from
from measured import assert_ran

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str, after: str) -> str:
    part = README.partition(after)[2]
    return re.search(rf"```{language}\n(.*?)```", part, re.DOTALL)[1]


COMMANDS = [line.partition("#")[0].strip() for line in blocks("sh", "## What to type").splitlines()]
SHORTER = {"10s": "1s", "200": "40", "1h": "1min", "stop.requests=500": "stop.requests=10"}  # for less time


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    keep_curve(curve_of([]), folder)  # so that the first run does not begin with a calibration, which is a command too
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command, store: Path):
    words = [SHORTER.get(word, word) for word in shlex.split(command)[1:]]
    if "chat.yaml" in command and "plan" not in words:
        words += ["--set", "stop.duration=1s"]
    if words[0] == "run" and "chat" in command:
        words += ["--set", "limits=[]"]  # so short a run cannot tell
    done = command_line.command(*words, store=store, cwd=ROOT, environ={"PATH": "/usr/bin:/bin", "HOME": str(store)})
    assert_ran(done.returncode, done.stderr)
    assert done.stdout.strip()


def test_the_plan_is_one() -> None:
    plan_from(mapping_in(blocks("yaml", "A plan is YAML"), "README.md")[0], where="README.md")


def test_one_real_output_is_shown() -> None:
    output = blocks("text", "`make run` ends like this")
    assert output.startswith("VALID")  # the first output that a reader sees is of a sound run
    assert "request throughput" in output


def test_every_room_is_on_the_map() -> None:
    rooms = {path.parent.name for path in (ROOT / "src/inferometer").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"`(\w+)/`", README.partition("## Rooms")[2]))


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "bench/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]


def anchors(page: Path) -> set[str]:
    """Those that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if path.startswith("http"):
            continue
        linked = page.parent / path if path else page
        assert linked.exists(), path
        assert not anchor or linked.suffix != ".md" or anchor in anchors(linked), f"{path}#{anchor}"


def test_pages_that_the_code_names_are_there() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        for named in re.findall(
            r"\bdocs/(?:concepts|guides|reference|decisions)/[\w-]+\.md", file.read_text(encoding="utf-8")
        ):
            assert (ROOT / named).exists(), f"{file.name}: {named}"
