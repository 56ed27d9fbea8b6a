"""Files are copied completely through a pod's log, in pieces, even if lines are lost."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.errors import LostError
from inferometer.scale.kubernetes.carrying import MARK, Cursor, Unpacking, printed


def made(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


@given(
    files=st.dictionaries(st.sampled_from(["a/x", "a/y/z", "a/0", "a/w"]), st.binary(max_size=20_000), max_size=4),
    piece=st.sampled_from([5_000, 7_001, 10**6]),
    lose=st.lists(st.integers(0, 30), max_size=6),
)
def test_whole_after_any_loss(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], piece: int, lose: list[int]
) -> None:
    root, into = tmp_path_factory.mktemp("pod"), tmp_path_factory.mktemp("here")
    (root / "a").mkdir()
    made(root, files)
    unpacking, rounds = Unpacking(into), 0
    while unpacking.cursor is not None:
        lines = list(printed(root, ["a"], unpacking.cursor, piece))
        lost = {lose[rounds]} if rounds < len(lose) else set()
        unpacking.take(line for at, line in enumerate(lines) if at not in lost)
        rounds += 1
        assert rounds < 100
    unpacking.finish()
    assert {str(path.relative_to(into)): path.read_bytes() for path in into.rglob("*") if path.is_file()} == files


def test_what_is_printed_besides_is_kept_apart(tmp_path: Path) -> None:
    unpacking = Unpacking(tmp_path)
    unpacking.take(["a warning", f"{MARK} end 0"])
    assert unpacking.cursor is None and unpacking.text == ["a warning"]


def test_a_pod_cannot_write_outside_of_the_results(tmp_path: Path) -> None:
    root, into = tmp_path / "pod", tmp_path / "here"
    made(root, {"a/x": b"1"})
    lines = [line.replace("a/x", "../../evil") for line in printed(root, ["a"], Cursor())]
    into.mkdir()
    unpacking = Unpacking(into)
    unpacking.take(lines)
    with pytest.raises(LostError, match="outside of the results"):
        unpacking.finish()
    assert not (tmp_path / "evil").exists()


def test_a_line_that_was_changed_is_left_out(tmp_path: Path) -> None:
    root, into = tmp_path / "pod", tmp_path / "here"
    made(root, {"a/x": b"hello"})
    into.mkdir()
    lines = [
        line.replace("aGVsbG8=", "aGVsbG9=") if "aGVs" in line else line for line in printed(root, ["a"], Cursor())
    ]
    lines = [line.replace("aGVsbG9=", "SGVsbG8=") for line in lines]
    unpacking = Unpacking(into)
    assert not unpacking.take(lines)
    assert unpacking.cursor == Cursor()
