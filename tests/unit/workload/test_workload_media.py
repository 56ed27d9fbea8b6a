"""Generated media, in prompts and in shared prefixes; and recorded sessions of hashed blocks."""

import base64
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from inferometer.errors import PlanError
from inferometer.plan.reading import plan_from
from inferometer.workload import media
from inferometer.workload.rows import RowError
from inferometer.workload.session import Session, workload_of


def sessions(workload: dict[str, Any], count: int) -> list[Session]:
    plan = plan_from({"target": {"api": "chat"}, "workload": workload}, (), "test")
    made = workload_of(plan.workload, plan.seed, 0, "nonce")
    return [made(index) for index in range(count)]


def parts(session: Session) -> list[dict[str, Any]]:
    prompt = session.turns[0].prompt
    assert isinstance(prompt, list) and len(prompt) == 1
    message = prompt[0]
    assert isinstance(message, dict)
    content: list[dict[str, Any]] = message["content"]
    return content


def kinds(session: Session) -> list[str]:
    return [part["type"] for part in parts(session)]


def boxes(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        found.append(data[at + 4 : at + 8])
        at += size
    return found


def test_videos_and_sound_are_parts_of_the_message() -> None:
    workload = {
        "input_tokens": 8,
        "output_tokens": 2,
        "videos": {"width": 32, "height": 16, "frames": 3, "position": 1},
        "audio": {"duration": "100ms", "sampling": 8000},
    }
    (session,) = sessions(workload, 1)
    assert kinds(session) == ["input_audio", "text", "video_url"]
    sound = base64.b64decode(parts(session)[0]["input_audio"]["data"])
    assert sound.startswith(b"RIFF") and len(sound) == 44 + 2 * 800
    video = base64.b64decode(parts(session)[2]["video_url"]["url"].removeprefix("data:video/mp4;base64,"))
    assert boxes(video) == [b"ftyp", b"mdat", b"moov"]
    assert video.count(b"\xff\xd8\xff\xe0") == 3  # the frames, each a JPEG


def test_frames_are_images_where_that_is_asked() -> None:
    workload = {"input_tokens": 8, "videos": {"width": 16, "height": 16, "frames": 4, "format": "png_frames"}}
    (session,) = sessions(workload, 1)
    assert kinds(session) == ["image_url"] * 4 + ["text"]


def test_media_of_a_prefix_are_the_same_in_a_group_and_new_elsewhere() -> None:
    media = {"images": {"width": 16, "height": 16}}
    prefix = {"tokens": 20, "suffix_tokens": 10, "groups": 2, "prompts": 4, "media": media}
    workload = {"prefix": prefix, "images": {"width": 8, "height": 8, "position": 1}}
    made = [parts(session) for session in sessions(workload, 8)]
    assert [[part["type"] for part in one] for one in made] == [["image_url", "text", "image_url"]] * 8
    shared = {one[0]["image_url"]["url"] for one in made}
    own = {one[2]["image_url"]["url"] for one in made}
    assert len(shared) == 2 and len(own) == 8


def test_own_media_follow_the_shared_text() -> None:
    workload = {"prefix": {"tokens": 20, "suffix_tokens": 10}, "images": {"width": 8, "height": 8}}
    before, image, after = parts(sessions(workload, 1)[0])
    assert (before["type"], image["type"], after["type"]) == ("text", "image_url", "text")
    assert len(before["text"].split()) == 20 and len(after["text"].split()) == 10


def test_media_need_a_chat() -> None:
    asking: tuple[dict[str, Any], ...] = (
        {"videos": {}},
        {"audio": {}},
        {"prefix": {"tokens": 4, "media": {"images": {}}}},
    )
    for workload in asking:
        with pytest.raises(PlanError, match="need api chat"):
            plan_from({"target": {"api": "completions"}, "workload": workload}, (), "test")


TRACE = {
    "id": "t",
    "models": ["m"],
    "block_size": 4,
    "system_tokens": 4,
    "requests": [
        {"t": 100.0, "type": "n", "model": "m", "in": 10, "out": 3, "hash_ids": [1, 2], "api_time": 2.0},
        {
            "t": 103.0,
            "type": "subagent",
            "agent_id": "a",
            "subagent_type": "explore",
            "requests": [
                {"t": 103.0, "type": "n", "model": "m", "in": 8, "out": 2, "hash_ids": [7, 8], "api_time": 9.0}
            ],
        },
        {"t": 104.0, "type": "s", "model": "m", "in": 14, "out": 5, "hash_ids": [1, 2, 3], "api_time": 1.0},
        {"t": 200.0, "type": "n", "model": "m", "in": 14, "out": 5, "hash_ids": [1, 2, 4], "api_time": 1.0},
    ],
}


def weka(folder: Path, **more: Any) -> Session:
    (folder / "t.json").write_text(json.dumps(TRACE))
    (session,) = sessions({"type": "weka", "path": str(folder), **more}, 1)
    return session


def text(session: Session, turn: int) -> str:
    return " ".join(str(message["content"]) for message in session.turns[turn].prompt)  # type: ignore[index]


def test_hashed_blocks_share_their_text_and_sub_agents_run_beside(tmp_path: Path) -> None:
    session = weka(tmp_path)
    assert [turn.after for turn in session.turns] == [(), (0,), (0,), (2,)]
    assert [turn.input_tokens for turn in session.turns] == [10, 8, 14, 14]
    main, again, last = (text(session, turn).split() for turn in (0, 2, 3))
    assert main[:8] == again[:8] == last[:8] and again[8:12] != last[8:12]
    assert text(session, 1).split()[:4] != main[:4]
    assert session.turns[1].think_s == pytest.approx(1.0)  # 100 + 2 until 103


def test_gaps_are_closed_and_long_sessions_left_out(tmp_path: Path) -> None:
    assert weka(tmp_path, max_gap="3s").turns[3].think_s == pytest.approx(2.0)  # 4 + 3, after 4 + 1
    with pytest.raises(Exception, match="no trace can be used"):
        weka(tmp_path, below_tokens=19)


@pytest.mark.parametrize("path", ["/dev/zero", "no/such.png", "a\0b"])
def test_a_file_of_media_that_cannot_be_read_is_told(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "MOST_BYTES", 1 << 20)
    with pytest.raises(RowError, match="which cannot be read"):
        media.media_parts({"image": path}, {"image": "image"})


def test_rows_need_not_have_media_of_a_column_with_a_question_mark() -> None:
    url = "https://example.org/a.png"
    assert media.media_parts({"text": "no image", "image": None}, {"image": "image?"}) == []
    assert media.media_parts({"image": url}, {"image": "image?"}) == [{"type": "image_url", "image_url": {"url": url}}]
    with pytest.raises(RowError, match="has no 'image'"):
        media.media_parts({"text": "no image"}, {"image": "image"})
