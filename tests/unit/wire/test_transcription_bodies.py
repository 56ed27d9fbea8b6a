"""Speech to text: the form that is sent, and the events of the answer."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from inferometer.errors import PlanError
from inferometer.plan.reading import plan_from
from inferometer.simulator.requests import read_transcription
from inferometer.simulator.settings import SimulatorSettings
from inferometer.wire.api import api_of, read_events, read_whole
from inferometer.workload.media import wav
from inferometer.workload.session import WorkloadContext, workload_of

SOUND = wav(np.sin(np.linspace(0, 440, 16_000)), 16_000)


def test_a_row_of_sound_becomes_a_form_that_the_simulator_reads(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(SOUND)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "names", "audio": str(tmp_path / "a.wav")}) + "\n")
    workload = {
        "type": "table",
        "path": str(rows),
        "columns": {"prompt": "prompt", "audio": "audio"},
        "output_tokens": 9,
    }
    plan = plan_from({"target": {"api": "transcriptions"}, "workload": workload})
    with pytest.raises(PlanError, match=r"workload\.audio is missing"):
        plan_from({"target": {"api": "transcriptions"}})
    request = workload_of(plan.workload, 0, 0, "n", WorkloadContext(api="transcriptions"))(0).turns[0]
    api = api_of("transcriptions")
    fields = api.body("whisper", request.prompt) | {"stream": True, "stream_include_usage": True}
    api.ask_length(fields, request.output_tokens)
    body = api.encode(fields)
    assert body.count(SOUND) == 1 and b'name="max_completion_tokens"\r\n\r\n9\r\n' in body
    question = read_transcription(body, SimulatorSettings(model="whisper"))
    assert question.stream and question.include_usage
    assert question.generations[0].max_tokens == 9
    assert len(question.generations[0].tokens) >= len(SOUND) // 640


def test_sound_in_a_chat_message_is_data(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(SOUND)
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": "what is it?", "audio": str(tmp_path / "a.wav")}) + "\n")
    workload = {"type": "table", "path": str(rows), "columns": {"prompt": "prompt", "audio": "audio"}}
    plan = plan_from({"target": {"api": "chat"}, "workload": workload})
    request = workload_of(plan.workload, 0, 0, "n", WorkloadContext(api="chat"))(0).turns[0]
    messages: Any = request.prompt
    sound, text = messages[0]["content"]
    assert base64.b64decode(sound["input_audio"]["data"]) == SOUND and sound["input_audio"]["format"] == "wav"
    assert text == {"type": "text", "text": "what is it?"}


def test_events_of_vllm_and_of_openai_are_read() -> None:
    api = api_of("transcriptions")
    vllm = [orjson.dumps({"choices": [{"delta": {"content": word}}]}) for word in ("a ", "b")]
    assert read_events(api, [*vllm, b"[DONE]"], keep_text=True).text[:2] == ["a ", "b"]
    openai = [b'{"type": "transcript.text.delta", "delta": "a"}', b'{"type": "transcript.text.done", "text": "a"}']
    assert read_events(api, openai, keep_text=True).counted == 1
    assert read_whole(api, b'{"text": "a b"}', keep_text=True).error is None
