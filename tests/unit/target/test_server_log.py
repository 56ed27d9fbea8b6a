"""The capped log of a server: its beginning and end, and the number of omitted bytes."""

import os
import re

from hypothesis import given
from hypothesis import strategies as st

from inferometer.target.logkeeper import CappedLog
from inferometer.target.probe import meaning


def logged(chunks, limit, path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    log = CappedLog(file, limit)
    for chunk in chunks:
        log.add(chunk)
    log.close()
    os.close(file)
    return path.read_bytes()


@given(st.lists(st.binary(max_size=300), max_size=60), st.integers(16, 4000))
def test_what_is_kept_is_the_beginning_and_the_end(tmp_path_factory, chunks, limit):
    whole = b"".join(chunks)
    kept = logged(chunks, limit, tmp_path_factory.getbasetemp() / "log")
    if len(whole) <= limit:
        assert kept == whole
        return
    tail = limit // 4
    head = limit - tail
    note = re.compile(rb"\n\.\.\. ([\d,]+) bytes left out \.\.\.\n")
    assert kept[:head] == whole[:head]
    assert kept[-tail:] == whole[-tail:]
    (missing,) = note.findall(kept[head : len(kept) - tail])
    assert int(missing.replace(b",", b"")) == len(whole) - limit


def test_known_failures_have_a_remedy() -> None:
    assert "default-runtime" in meaning(["x", "RuntimeError: Platform not detected"])
    assert "default-runtime" in meaning(["RuntimeError: Failed to infer device type, please set VLLM_LOGGING_LEVEL"])
    assert "container toolkit" in meaning(['could not select device driver "" with capabilities: [[gpu]].'])
    assert "nvidia-smi" in meaning(["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"])
    assert "HF_TOKEN" in meaning(["OSError: You are trying to access a gated repo."])
    assert "flag" in meaning(["vllm: error: unrecognized arguments: --max-len"])
    assert meaning(["INFO: all is well"]) is None
