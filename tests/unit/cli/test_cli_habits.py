"""Habits from other tools: their options and commands are met with a hint, addresses are taken as people paste them,
the environment says what is usual, and a log gets a line now and then."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from inferometer.cli import execute
from inferometer.cli.group import _OTHER_OPTIONS, _OTHER_SETTINGS, COMMANDS, group
from inferometer.errors import PlanError
from inferometer.load.progress import Progress
from inferometer.plan.model import Plan
from inferometer.plan.overrides import Defaults, Flags, defaults_in, parse_override
from inferometer.plan.reading import plan_from
from inferometer.show.progress import ProgressLine
from inferometer.vocabulary import NANOSECONDS

URL = "http://localhost:8000"


def plan(said: object = None, **flags: object) -> Plan:
    return plan_from(said or {}, flags=Flags(**flags))  # type: ignore[arg-type]


# -- options and commands of other tools


@pytest.mark.parametrize(
    ("typed", "error", "hint"),
    [
        ("run --rps 5", "no such option --rps; use --rate", "inferometer run --rate 5"),
        (
            "run --rps 5 --num-prompts=10 --url h",
            "no such option --rps; use --rate",
            "inferometer run --rate 5 --requests 10 --url h\n",
        ),
        (
            "run p.yaml -q --rps=5 --host h --port 1",
            "no such option --rps",
            "run p.yaml -q --rate 5 --url http://h:1\n",
        ),
        ("run --qps=5", "no such option --qps; use --rate", "inferometer run --rate 5"),
        ("run --num-prompts 9", "no such option --num-prompts; use --requests", "inferometer run --requests 9"),
        ("run --num_prompts 9", "no such option --num_prompts; use --requests", "inferometer run --requests 9"),
        ("run --max-concurrency", "no such option --max-concurrency; use --concurrency", "--concurrency N"),
        ("run --users 4", "no such option --users; use --concurrency", "--concurrency 4"),
        ("run --base-url http://h", "no such option --base-url; use --url", "--url http://h"),
        ("run --endpoint http://h", "no such option --endpoint; use --url", "--url http://h"),
        ("run --endpoint /v1/chat/completions", "no such option --endpoint; use --api", "--api chat"),
        ("run --disable-tqdm", "no such option --disable-tqdm; use --quiet", "inferometer run --quiet\n"),
        ("run --ignore-eos", "no such option --ignore-eos; use a setting", "--set sampling.ignore_eos=true"),
        ("search --rps 5", "no such option --rps; use --rate", "inferometer search --rate 5"),
        ("run --sed 4", "no such option --sed; did you mean --seed", "inferometer run --help"),
        ("show --rps 4", "no such option --rps\n", "inferometer show --help"),
        ("run http://h:1", "http://h:1: this is a URL, not a plan", "inferometer run --url http://h:1"),
        ("rn", "no command 'rn'; did you mean run?", "inferometer run"),
        ("compaer", "no command 'compaer'; did you mean compare?", "inferometer compare"),
        ("ls", "no command 'ls'; did you mean list?", "inferometer list"),
        ("vllm bench serve", "no command 'vllm'", "inferometer run -- vllm"),
        ("plan.yaml", "no command 'plan.yaml'", "inferometer run plan.yaml"),
        ("localhost:8000", "no command 'localhost:8000'", "inferometer run --url localhost:8000"),
    ],
)
def test_another_tools_words_are_met_with_a_hint(
    typed: str, error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(typed.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"error: {error}")
    assert hint in told.err.partition("hint: ")[2]


@pytest.mark.parametrize(
    "typed",
    [
        ["run", "--api-key", "sk-1234567890"],
        ["run", "--headers", "K: sk-1234567890"],
        [
            "run",
            "--rps",
            "5",
            "--api-key",
            "sk-1234567890",
            "-H",
            "K: sk-1234567890",
            "--url",
            "http://u:sk-1234567890@h",
        ],
    ],
    ids=" ".join,
)
def test_a_hint_repeats_no_secret(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(typed) == 2
    assert "sk-1234567890" not in capsys.readouterr().err


def test_hints_name_what_there_is() -> None:
    run = group.get_command(group.make_context("inferometer", ["run"]), "run")
    assert run is not None
    ours = {name for each in run.params for name in each.opts}
    assert set(_OTHER_OPTIONS) <= ours
    others = [name for names in _OTHER_OPTIONS.values() for name in names.split()]
    assert len(others) == len(set(others)) and not set(others) & ours
    for setting in _OTHER_SETTINGS.values():
        parse_override(setting)
    assert {"init", "run"} <= set(COMMANDS)


# -- addresses


@pytest.mark.parametrize(
    ("typed", "url"),
    [
        ("localhost:8000", URL),
        ("localhost", "http://localhost"),
        ("127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("gpu-7.cluster:80", "http://gpu-7.cluster:80"),
        ("[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_an_address_without_a_scheme(typed: str, url: str) -> None:
    assert plan(url=[typed]).target.url == [url]
    assert plan({"target": typed}).target.url == [url]


@pytest.mark.parametrize("typed", ["ftp://h:1", "model", "api.example.com", "user:1@h", "h:0", "h:x"])
def test_what_is_no_address_is_refused(typed: str) -> None:
    with pytest.raises(PlanError):
        plan(url=[typed])


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/completions/", "completions"),
        ("/v1/responses", "responses"),
        ("/v1/messages", "anthropic"),
    ],
)
def test_a_pasted_request_path_is_the_api(path: str, api: str) -> None:
    for made in (plan(url=[URL + path]), plan({"target": URL + path}), plan({"target": {"url": [URL + path] * 2}})):
        assert (set(made.target.url), made.target.api) == ({URL}, api)
    assert plan(url=[f"https://h/llm{path}"]).target.url == ["https://h/llm"]


def test_a_typed_url_wins_over_the_api_of_the_file() -> None:
    assert plan({"target": {"api": "completions"}}, url=[f"{URL}/v1/chat/completions"]).target.api == "chat"


def test_a_path_and_an_api_that_disagree() -> None:
    with pytest.raises(PlanError, match=r"target\.url ends in the path of api chat, but api is completions"):
        plan(url=[f"{URL}/v1/chat/completions"], api="completions")
    with pytest.raises(PlanError, match="ends in the path of api chat"):
        plan(url=[URL, f"{URL}/v1/chat/completions"])


# -- flags


def test_flags_for_what_people_set_daily() -> None:
    made = plan(
        {"target": {"headers": {"x-a": "old", "X-B": "kept"}}, "outputs": [{"format": "csv", "path": "a.csv"}]},
        name="nightly",
        tokenizer="server",
        header=["X-A: new: er", "X-C=1"],
        output=["a.csv", "b.json", "vllm=c.json"],
    )
    assert made.name == "nightly"
    assert getattr(made.workload, "tokenizer") == "server"  # noqa: B009  (a workload of some type)
    assert made.target.headers == {"X-B": "kept", "X-A": "new: er", "X-C": "1"}
    assert [(output.format, output.path) for output in made.outputs] == [
        ("csv", "a.csv"),
        ("json", "b.json"),
        ("vllm", "c.json"),
    ]


@pytest.mark.parametrize(
    ("typed", "fields"),
    [
        ("sharegpt.json", {"type": "sharegpt", "path": "sharegpt.json"}),
        ("sharegpt=data.json", {"type": "sharegpt", "path": "data.json"}),
        ("https://h/prompts.txt", {"type": "prompts", "url": "https://h/prompts.txt"}),
        ("owner/name", {"type": "huggingface", "repo": "owner/name"}),
        ("data/prompts.txt", {"type": "prompts", "path": "data/prompts.txt"}),
    ],
)
def test_a_dataset_takes_the_place_of_the_workload(typed: str, fields: dict[str, str]) -> None:
    made = plan({"workload": {"input_tokens": 9, "tokenizer": "server"}}, dataset=typed).workload.model_dump()
    assert made.items() >= {**fields, "tokenizer": "server"}.items()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"header": ["sk-secret"]}, "--header must be 'Name: value'"),
        ({"output": ["result"]}, "--output result: the name must end in .json"),
        ({"dataset": "sharegpt"}, "name a file"),
        ({"dataset": "data.bin"}, "workload.type is missing"),
    ],
)
def test_flags_that_say_too_little(flags: dict[str, object], text: str) -> None:
    with pytest.raises(PlanError, match=text) as caught:
        plan(**flags)
    assert "sk-secret" not in caught.value.message


# -- the environment


ENVIRONMENT = {"INFEROMETER_URL": "localhost:1 localhost:2", "INFEROMETER_MODEL": "m", "INFEROMETER_KEY_ENV": "MY_KEY"}


def test_the_environment_says_what_nobody_else_does() -> None:
    usual = defaults_in(ENVIRONMENT)
    target = plan(defaults=usual).target
    assert (target.url, target.model, target.key_env) == (["http://localhost:1", "http://localhost:2"], "m", "MY_KEY")
    assert plan({"target": {"url": URL, "model": "own"}}, defaults=usual).target.model == "own"
    assert plan({"target": URL}, defaults=usual).target.url == [URL]
    assert plan(url=[URL], defaults=usual).target.url == [URL]
    simulated = plan(server="simulator", defaults=usual).target
    assert (simulated.url, simulated.model, simulated.key_env) == ([], None, "OPENAI_API_KEY")
    assert plan(server="vllm", defaults=usual).target.model == "m"
    assert plan(defaults=Defaults(model="m")).target.model is None  # the simulator is measured
    assert defaults_in({}) == Defaults(url=[])


@pytest.fixture
def usual_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("usual_url")
def test_a_run_says_that_the_environment_aims_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert execute(["run", "--dry-run"]) == 0
    told = capsys.readouterr()
    assert told.err == "note: measuring http://localhost:1, http://localhost:2, from INFEROMETER_URL\n"
    assert yaml.safe_load(told.out)["target"]["url"] == ["http://localhost:1", "http://localhost:2"]
    file = tmp_path / "plan.yaml"
    file.write_text(f"target: {URL}\n")
    for arguments in ([str(file)], ["--url", URL], ["--set", f"target.url={URL}"], ["--set", "server=simulator"]):
        assert execute(["run", "--dry-run", *arguments]) == 0
        told = capsys.readouterr()
        assert told.err == "" and "localhost:1" not in told.out


def test_help_names_the_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", "--help"]) == 0
    shown = capsys.readouterr().out
    for name in (*ENVIRONMENT, "INFEROMETER_STORE", "INFEROMETER_RECORDS", "INFEROMETER_NOTIFY"):
        assert name in shown


# -- dry runs


def test_a_dry_run_shows_what_was_set(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["run", "--dry-run", "--url", "localhost:8000", "--concurrency", "8", "--set", "seed=0"]
    assert execute(typed) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown.pop("stop") == {"requests": 400}  # it follows from the rest
    assert shown == {"target": {"url": URL}, "load": {"type": "concurrency", "concurrency": 8}, "seed": 0}
    assert execute([*typed, "--all"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["confidence"] == 0.95
    assert execute(["run", "--all"]) == 2
    assert "--all needs --dry-run" in capsys.readouterr().err


# -- progress where there is no terminal


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    os.set_blocking(ends[0], False)
    yield ends
    for end in ends:
        os.close(end)


def lines_of(pipe: tuple[int, int], lines: float, seconds: int = 35) -> list[str]:
    instants = iter(range(seconds + 2))
    with os.fdopen(os.dup(pipe[1]), "w") as file:
        watch = ProgressLine(file, now=lambda: next(instants) * NANOSECONDS, lines=lines)
        for at in range(seconds):
            watch(
                Progress(
                    at=at * NANOSECONDS,
                    done=5 * at,
                    in_flight=3,
                    output_tokens=100 * at,
                    ttft_s=[0.1],
                    phase="load" if at else "connect",
                    ends_at=(41 * NANOSECONDS) if at else None,
                )
            )
        watch.clear()
    try:
        return os.read(pipe[0], 65536).decode().splitlines()
    except BlockingIOError:
        return []


def test_a_log_gets_a_line_every_ten_seconds(pipe: tuple[int, int]) -> None:
    assert lines_of(pipe, float("inf")) == [
        "progress: load 23%, 31 s left, 5 req/s, 3 in flight, TTFT 100 ms, 100 tok/s",
        "progress: load 47%, 21 s left, 5 req/s, 3 in flight, TTFT 100 ms, 100 tok/s",
        "progress: load 72%, 11 s left, 5 req/s, 3 in flight, TTFT 100 ms, 100 tok/s",
    ]


def test_beside_json_there_is_one_line_and_in_a_short_run_none(pipe: tuple[int, int]) -> None:
    assert len(lines_of(pipe, 1)) == 1
    assert lines_of(pipe, float("inf"), seconds=9) == []
    assert lines_of(pipe, 0) == []
