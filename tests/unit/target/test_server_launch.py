"""The launch of each type of server: the exact command, and the readiness check."""

import os
import sys
from pathlib import Path

import pytest

from inferometer.errors import PlanError, TargetError
from inferometer.plan.model import Server, Target
from inferometer.target.launch import LaunchPlace, Spelling, flags_of, launch_of, model_of
from inferometer.target.probe import matching
from inferometer.wire.child import SAFE_PATH

PLACE = LaunchPlace("127.0.0.1", 8123, "Qwen/Qwen3-0.6B")


def launch(place=PLACE, **settings):
    return launch_of(Server(**settings), place)


def test_vllm() -> None:
    args = {"max-model-len": 4096, "enforce_eager": True, "trust-remote-code": None, "enable-prefix-caching": False}
    made = launch(type="vllm", args=args | {"compilation-config": {"level": 3}}, flags=["-tp", "2"], env={"A": "b"})
    assert made.argv == [
        *("vllm", "serve", "Qwen/Qwen3-0.6B", "--host", "127.0.0.1", "--port", "8123"),
        *("--max-model-len", "4096", "--enforce-eager", "--trust-remote-code", "--no-enable-prefix-caching"),
        *("--compilation-config", '{"level":3}', "-tp", "2"),
    ]
    assert (made.url, made.names, made.env) == ("http://127.0.0.1:8123", ["Qwen/Qwen3-0.6B"], SAFE_PATH | {"A": "b"})
    assert made.health == ("/health",) and made.models == "/v1/models" and not made.lenient


def test_vllm_served_under_other_names_and_by_another_program() -> None:
    made = launch(
        type="vllm", command="/envs/v/bin/vllm serve", args={"served-model-name": ["a", "b"], "dtype": "half"}
    )
    assert made.argv[:3] == ["/envs/v/bin/vllm", "serve", "Qwen/Qwen3-0.6B"]
    assert made.argv[-5:] == ["--served-model-name", "a", "b", "--dtype", "half"]
    assert made.names == ["a", "b"]
    assert launch(type="vllm", flags=["--served-model-name=c"]).names == ["c"]


def test_vllm_shared_by_runs_can_be_asked_to_forget() -> None:
    assert launch(type="vllm", keep="shared").env == SAFE_PATH | {"VLLM_SERVER_DEV_MODE": "1"}
    assert launch(type="vllm", keep="shared", reset_cache=False).env == SAFE_PATH
    assert launch(type="vllm", command="vllm serve").env == {}  # which may mean to import from where it is
    assert launch(type="vllm").resets == ("/reset_prefix_cache",)


def test_sglang() -> None:
    made = launch(type="sglang", args={"mem_fraction_static": 0.8, "disable-radix-cache": True, "x": False})
    assert made.argv == [
        *("python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-0.6B"),
        *("--host", "127.0.0.1", "--port", "8123", "--mem-fraction-static", "0.8", "--disable-radix-cache"),
    ]
    assert made.resets == ("/flush_cache",)


def test_llamacpp_with_a_file_and_with_a_repository() -> None:
    file = LaunchPlace("127.0.0.1", 1, "/models/tiny-q4.gguf")
    made = launch(
        file, type="llamacpp", args={"ngl": 99, "c": 4096, "metrics": True, "mmap": False, "lora": ["a", "b"]}
    )
    assert made.argv == [
        *("llama-server", "-m", "/models/tiny-q4.gguf", "--host", "127.0.0.1", "--port", "1"),
        *("-ngl", "99", "-c", "4096", "--metrics", "--no-mmap", "--lora", "a", "--lora", "b"),
    ]
    assert made.names == ["/models/tiny-q4.gguf"]
    fetched = launch(type="llamacpp")
    assert fetched.argv[1:3] == ["-hf", "Qwen/Qwen3-0.6B"] and fetched.names == []
    assert launch(file, type="llamacpp", args={"alias": "tiny"}).names == ["tiny"]


def test_tgi() -> None:
    made = launch(type="tgi", args={"max_total_tokens": 4096})
    assert made.argv == [
        *("text-generation-launcher", "--model-id", "Qwen/Qwen3-0.6B", "--hostname", "127.0.0.1", "--port", "8123"),
        *("--max-total-tokens", "4096"),
    ]
    assert made.models == "/info"


def test_any_command_keeps_its_own_spelling() -> None:
    made = launch(type="command", command="./serve {model} -p {port}", args={"max_len": 3, "json": '{"a": 1}'})
    assert made.argv == ["./serve", "Qwen/Qwen3-0.6B", "-p", "8123", "--max_len", "3", "--json", '{"a": 1}']
    assert made.lenient and made.names == []


def test_the_simulator_takes_its_model_from_its_settings() -> None:
    made = launch(type="simulator", args={"speed": 2}, model="toy")
    assert made.argv[:4] == [sys.executable, "-P", "-m", "inferometer.simulator"]
    assert made.names == ["toy"] and made.held_by_stdin
    assert model_of(Server(), Target(model="x")) is None
    assert model_of(Server(type="vllm", model="~/m"), Target(model="x")) == str(Path("~/m").expanduser())


def test_a_server_that_listens_everywhere_is_asked_on_the_loopback() -> None:
    assert LaunchPlace("0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert LaunchPlace("::", 80).url == "http://[::1]:80"
    assert LaunchPlace("::1", 80).url == "http://[::1]:80"


def test_variables_that_are_not_set_and_folders_that_are_not_there(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(PlanError, match=r"server.env.KEY needs environment variables that are not set: NOWHERE"):
        launch(type="vllm", env={"KEY": "${NOWHERE}"})
    with pytest.raises(PlanError, match=r"server.folder must be an existing folder"):
        launch(type="vllm", folder=str(tmp_path / "none"))


def test_flags() -> None:
    assert flags_of({"a_b": 1, "v": 2, "--as-is": True, "-x": "y", "off": False}) == [
        *("--a_b", "1", "-v", "2", "--as-is", "-x", "y")
    ]
    assert flags_of({"a": [], "many": [1, "b"], "deep": {"k": [True]}, "x": 0.5, "zero": 0}) == [
        *("--many", "1", "b", "--deep", '{"k":[true]}', "-x", "0.5", "--zero", "0")
    ]
    assert flags_of({"no-mmap": False}, Spelling(negated=True)) == ["--mmap"]


def test_models_are_matched_by_name_and_files_by_their_last_part() -> None:
    assert matching(["a"], ["b", "a"]) == "a"
    assert matching(["/m/tiny-q4.gguf"], ["tiny-q4.gguf"]) == "tiny-q4.gguf"
    assert matching(["/m/tiny"], ["tiny"]) == "tiny"
    assert matching(["org/tiny"], ["tiny"]) is None  # another repository's
    assert matching(["a"], []) is None


@pytest.fixture
def programs(tmp_path: Path, monkeypatch):
    """Container engines by name only: nothing calls them here."""

    def make(*names):
        for name in names:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    return make


def test_a_container_of_docker(programs, monkeypatch):
    folder = programs("docker", "podman")
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", "hf_secretsecret")
    monkeypatch.setenv("HF_HOME", "/data/hf")
    monkeypatch.setenv("MY_KEY", "sesame")
    made = launch(
        type="container",
        image="vllm/vllm-openai:v0.10.1.1",
        runtime="nvidia",
        env={"VLLM_LOGGING_LEVEL": "DEBUG", "VLLM_API_KEY": "${MY_KEY}"},
        args={"max-model-len": 4096},
    )
    assert made.argv == [
        *(str(folder / "docker"), "run", "--detach", "--gpus", "all", "--runtime", "nvidia", "--ipc", "host"),
        *("--volume", "/data/hf:/root/.cache/huggingface", "--env", "HUGGING_FACE_HUB_TOKEN"),
        *("--env", "VLLM_LOGGING_LEVEL=DEBUG", "--env", "VLLM_API_KEY", "--publish", "127.0.0.1:8123:8000"),
        *("vllm/vllm-openai:v0.10.1.1", "--model", "Qwen/Qwen3-0.6B", "--max-model-len", "4096"),
    ]
    assert made.env == {"VLLM_API_KEY": "sesame"}  # the engine's program reads it there
    assert made.is_container and not made.lenient


def test_a_container_of_podman_with_two_gpus_and_without(programs):
    programs("podman")
    made = launch(type="container", image="lmsysorg/sglang:v0.5", gpus="0,1", volumes=["/m:/m"], pull="never")
    assert made.argv[3:7] == ["--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"]
    assert made.argv[-10:] == [
        *("lmsysorg/sglang:v0.5", "python3", "-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-0.6B"),
        *("--host", "0.0.0.0", "--port", "30000"),
    ]
    assert "127.0.0.1:8123:30000" in made.argv and "never" in made.argv
    bare = launch(type="container", image="mine:1", gpus="none", volumes=[], ipc="private", container_port=9000)
    assert bare.argv[3:] == ["--ipc", "private", "--publish", "127.0.0.1:8123:9000", "mine:1"]
    assert bare.lenient


def test_without_an_engine_for_containers(programs):
    programs()
    with pytest.raises(TargetError, match="docker and podman are not installed"):
        launch(type="container", image="x")
    assert os.environ["PATH"]


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(PlanError, match=r"one of vllm, sglang, .* got abacus"):
        launch_of(Server.model_construct(type="abacus"), PLACE)
