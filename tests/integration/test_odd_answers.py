"""Servers that send invalid answers: the load continues to its end, and all logged records can be shown."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from zlib import crc32

import msgspec
import pytest

import command_line
from inferometer.conduct.run import partial_run
from inferometer.load.shard import ShardJob, run_shard
from inferometer.plan.model import Plan
from inferometer.plan.text import to_mapping
from inferometer.record.log import LogWriter, Note, read_log
from inferometer.record.record import Record
from inferometer.store.store import open_store
from mutated_answers import mutated_answer

REQUESTS = 60
FINE = b'{"choices":[{"text":"x","message":{"content":"x"}}],"generated_text":"x"}'


@contextmanager
def answering(answer_of: Callable[[int], bytes]) -> Iterator[str]:
    """A server of raw bytes: the answer of each request, then it closes the connection."""
    numbers = count()

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client, suppress(OSError), client.makefile("rb") as asked:
            length = 0
            while line := asked.readline().strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            asked.read(length)
            client.sendall(answer_of(next(numbers)))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def shard_of(folder: Path, url: str, api: str) -> ShardJob:
    body = {"body": '{"q": "{prompt}"}'} if api == "template" else {}
    plan = Plan(
        target={"url": url, "api": api, "timeout": {"request": 10}} | body,
        workload={"input_tokens": 4, "output_tokens": 4},
        load={"concurrency": 4},
        stop={"requests": REQUESTS},
    )
    return ShardJob(plan.model_dump(mode="json"), str(folder / "log"), "nonce", "m")


@pytest.mark.parametrize("api", ["completions", "chat", "responses", "anthropic", "tgi", "template"])
def test_a_load_on_a_server_that_sends_anything_has_a_record_of_every_request(api: str, tmp_path: Path) -> None:
    random = Random(api)
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(FINE), FINE)
    odd = [mutated_answer(random, api).raw for _ in range(REQUESTS)]
    with answering(lambda number: odd[number % REQUESTS] if number % 2 else whole) as url:
        report = run_shard(shard_of(tmp_path, url, api), lambda _progress: None)
    log = read_log(tmp_path / "log")
    assert sorted(record.session for record in log.records) == list(range(REQUESTS))
    assert (report.gave_up, log.skipped, log.truncated) == (None, 0, False)
    assert any(record.outcome == "bad" for record in log.records)


def frame(kind: int, content: object) -> bytes:
    payload = msgspec.msgpack.encode(content)
    checksum = crc32(payload, crc32(bytes([kind])))
    return len(payload).to_bytes(4, "little") + checksum.to_bytes(4, "little") + bytes([kind]) + payload


def test_what_cannot_be_read_of_a_log_is_said_and_hides_nothing(tmp_path: Path) -> None:
    """As an older version wrote it when a server counted more tokens than a column holds."""
    store = open_store(tmp_path)
    folder = store.new_run()
    folder.write_plan(to_mapping(Plan(target={"url": "http://127.0.0.1:9"}, load={"concurrency": 1})))
    at = [1_000_000_000 * second for second in range(1, 22)]
    records = [
        Record(
            session=number,
            scheduled_at=start,
            ready_at=start,
            sent_at=start,
            ended_at=start + 500,
            read_at=(start + 400).to_bytes(8, "little"),
            read_tokens=(1).to_bytes(8, "little"),
            status=200,
        )
        for number, start in enumerate(at)
    ]
    odd = msgspec.structs.asdict(records[5]) | {"counted_tokens": 2**63}
    with LogWriter(folder.log_path(0)) as log:
        log.add(Note("start", at=at[0]))
        for record in records:
            log.append(record)
    with folder.log_path(0).open("ab") as file:
        file.write(frame(1, [*odd.values()]) + frame(3, {"what": "ended", "at": at[-1]}))
    reasons = partial_run(folder.load(), tmp_path).doubts
    assert "unreadable_entries" in {reason.code for reason in reasons}
    shown = command_line.command("show", folder.path.name, "--partial", store=tmp_path)
    assert "1 entry could not be read" in " ".join(shown.stdout.split())
