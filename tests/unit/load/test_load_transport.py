"""The bytes of requests: paths, headers, bodies."""

import json

import orjson
import pytest

from inferometer.load.transport import Encoder, request_headers, request_path
from inferometer.plan.model import Plan
from inferometer.wire.origin import origin_of
from inferometer.workload.session import Request

URL = "http://model.test:8000"


def encoded(request=None, environ=None, url=URL, proxy=None, **settings):
    """Request line, headers and body of a plan's request."""
    plan = Plan(target={"url": url} | settings.pop("target", {}), **settings)
    encoder = Encoder(plan, plan.classes[0], "m", environ or {})
    request = request or Request("hello", output_tokens=5)
    head, _, body = encoder.encode(request, origin_of(url, proxy=proxy)).partition(b"\r\n\r\n")
    line, *headers = head.decode().split("\r\n")
    return line, dict(header.split(": ", 1) for header in headers), body


def test_a_usual_request() -> None:
    line, headers, body = encoded()
    assert line == "POST /v1/completions HTTP/1.1"
    assert headers["Host"] == "model.test:8000"
    assert headers["Content-Length"] == str(len(body))
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    assert json.loads(body) == {
        "model": "m",
        "prompt": "hello",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
        "max_tokens": 5,
    }


def test_the_key_comes_from_the_environment() -> None:
    _, headers, _ = encoded(environ={"OPENAI_API_KEY": "k"})
    assert headers["Authorization"] == "Bearer k"


def test_own_headers_replace_ours_whatever_their_case() -> None:
    plan = Plan(target={"url": URL, "headers": {"authorization": "Basic ${WHO}", "content-type": "a/b"}})
    headers = request_headers(plan.target, plan.classes[0], {"OPENAI_API_KEY": "k", "WHO": "me"})
    assert headers["authorization"] == "Basic me"
    assert [name.lower() for name in headers] == ["accept", "authorization", "content-type"]


def test_headers_and_fields_of_one_request() -> None:
    request = Request("hi", headers={"X-Own": "1"}, body={"model": "other", "n": 2})
    _, headers, body = encoded(request)
    assert headers["X-Own"] == "1"
    document = json.loads(body)
    assert (document["model"], document["n"], "max_tokens" in document) == ("other", 2, False)


@pytest.mark.parametrize(
    ("url", "api", "path", "expected"),
    [
        (URL, "completions", None, "/v1/completions"),
        (URL + "/", "chat", None, "/v1/chat/completions"),
        (URL + "/v1", "chat", None, "/v1/chat/completions"),
        (URL + "/proxy/v1/", "completions", None, "/proxy/v1/completions"),
        (URL + "/proxy", "completions", "/own", "/proxy/own"),
    ],
)
def test_the_path(url, api: str, path: str | None, expected: str):
    plan = Plan(target={"url": url, "api": api, "path": path})
    assert request_path(origin_of(url), plan.target) == expected


@pytest.mark.parametrize(("url", "expected"), [(URL, "/"), (URL + "/generate", "/generate")])
def test_a_template_goes_where_the_url_says(url, expected: str):
    plan = Plan(target={"url": url, "api": "template", "body": "{prompt}"})
    assert request_path(origin_of(url), plan.target) == expected


def test_a_template_body() -> None:
    _, _, body = encoded(Request('say "hi"\n'), target={"api": "template", "body": '{"inputs": "{prompt}", "n": 1}'})
    assert json.loads(body) == {"inputs": 'say "hi"\n', "n": 1}


def test_sampling() -> None:
    sampling = {"ignore_eos": False, "temperature": 0, "top_p": 0.5, "stop": "end", "extra": {"seed": 1}}
    _, _, body = encoded(sampling=sampling, target={"stream": False, "api": "chat"})
    document = json.loads(body)
    assert document["messages"] == [{"role": "user", "content": "hello"}]
    assert "ignore_eos" not in document
    assert "stream_options" not in document
    assert (document["stream"], document["temperature"], document["stop"], document["seed"]) == (False, 0, ["end"], 1)


def test_eos_is_not_ignored_where_no_length_is_asked() -> None:
    _, _, body = encoded(Request("hi"), workload={"output_tokens": None})
    assert "ignore_eos" not in json.loads(body)


def test_token_ids() -> None:
    assert json.loads(encoded(Request([5, 6]))[2])["prompt"] == [5, 6]


def test_through_a_plain_proxy() -> None:
    line, headers, _ = encoded(proxy="http://me:pass@127.0.0.1:3128")
    assert line == f"POST {URL}/v1/completions HTTP/1.1"
    assert headers["Proxy-Authorization"].startswith("Basic ")


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("extra", [{}, {"seed": 7}, {"prompt": "mine", "messages": []}, {"user": "\u2042 a prompt"}])
def test_bodies_cut_around_the_prompt_are_those_made_whole(api, extra) -> None:
    plan = Plan(target={"url": URL, "api": api}, sampling={"extra": extra, "temperature": 0.5})
    encoder = Encoder(plan, plan.classes[0], "m", {})
    for prompt in ("hello", "", 'quoted "\\ \n \x01', "\u2042 a prompt", "naïve 漢字 🎉"):
        for tokens in (None, 1, 300):
            made = encoder.body(Request(prompt, output_tokens=tokens))
            assert made == orjson.dumps(encoder._body_fields(prompt, tokens))
