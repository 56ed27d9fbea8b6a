"""Each API: the request body, and the parsing of answers in the formats of its documentation."""

from typing import Any, get_args

import orjson
import pytest

from inferometer.plan.target import Api as ApiName
from inferometer.plan.target import Target
from inferometer.wire.api import APIS, Answer, Manner, api_of, read_events, read_whole
from inferometer.wire.apis.pooling import query_and_documents
from inferometer.wire.apis.template import template_body
from inferometer.wire.http1 import parse_head
from inferometer.wire.http1 import whole as all_at_once
from inferometer.wire.pieces import reading_pieces
from inferometer.wire.sse import events_of

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, IMAGE]},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "42"},
]


def body(api: str, prompt: Any = "one two", tokens: int | None = 7, **manner: Any) -> dict[str, Any]:
    entry = api_of(api)
    fields = entry.body("m", prompt) | entry.fields(Manner(with_length=tokens is not None, **manner))
    entry.ask_length(fields, tokens)
    return fields


def stream(api: str, text: str, keep_text: bool = True) -> Answer:
    """A stream as it is printed in documentations: events with their names, blank lines between."""
    raw = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + text.lstrip().encode()
    head = parse_head(raw)
    assert head is not None
    data, _ = events_of(raw, head)
    return read_events(api_of(api), data, keep_text)


def whole(api: str, document: Any) -> Answer:
    return read_whole(api_of(api), orjson.dumps(document), keep_text=True)


def test_every_name_of_the_plan_is_an_api_and_the_other_way_round() -> None:
    assert set(APIS) == set(get_args(ApiName))
    assert all(api_of(name).path.startswith("/") for name in APIS)


# -- what is sent --------------------------------------------------------------------------------------------


def test_completions_and_chat_ask_for_usage_and_the_full_length() -> None:
    shared = {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "max_tokens": 7}
    assert body("completions") == {"model": "m", "prompt": "one two"} | shared
    assert body("chat") == {"model": "m", "messages": [{"role": "user", "content": "one two"}]} | shared
    assert "ignore_eos" not in body("chat", ignore_eos=False)
    assert "ignore_eos" not in body("chat", tokens=None)


def test_responses_take_items_for_what_tools_said() -> None:
    assert body("responses", sampling={"temperature": 0}) == {
        "model": "m", "input": "one two", "stream": True, "ignore_eos": True, "temperature": 0, "max_output_tokens": 7,
    }  # fmt: skip
    system, user, call, result = body("responses", CHAT)["input"]
    assert system == {"role": "system", "content": "Be brief."}
    assert [part["type"] for part in user["content"]] == ["input_text", "input_image"]
    assert call == {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
    assert result == {"type": "function_call_output", "call_id": "c1", "output": "42"}


def test_anthropic_has_a_system_field_blocks_and_a_limit_of_its_own() -> None:
    asked = body("anthropic", CHAT, sampling={"stop": ["x"]})
    assert (asked["system"], asked["max_tokens"], asked["stop_sequences"]) == ("Be brief.", 7, ["x"])
    user, call, result = asked["messages"]
    assert user["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert call["content"] == [{"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}}]
    assert result == {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]}


def test_anthropic_is_sent_no_field_that_it_would_refuse_and_always_a_limit() -> None:
    assert body("anthropic", tokens=None) == {
        "model": "m", "messages": [{"role": "user", "content": "one two"}], "stream": True, "max_tokens": 4096,
    }  # fmt: skip
    assert body("anthropic", ignore_eos=True)["ignore_eos"] is True
    assert api_of("anthropic").credentials("k") == {"x-api-key": "k"}
    assert api_of("anthropic").headers == {"anthropic-version": "2023-06-01"}


def test_an_anthropic_key_is_looked_for_in_its_own_place() -> None:
    assert Target(api="anthropic").key_env == "ANTHROPIC_API_KEY"
    assert Target(api="anthropic", key_env="MINE").key_env == "MINE"
    assert Target(api="chat").key_env == "OPENAI_API_KEY"


def test_tgi_has_parameters_and_no_temperature_of_0() -> None:
    asked = body("tgi", sampling={"temperature": 0, "top_p": 0.9}, extra={"parameters": {"top_k": 5}})
    assert asked == {
        "inputs": "one two",
        "parameters": {"details": True, "top_p": 0.9, "top_k": 5, "max_new_tokens": 7},
    }
    assert body("tgi", tokens=None)["parameters"] == {"details": True}


def test_a_length_of_one_request_is_not_that_of_the_next() -> None:
    entry = api_of("tgi")
    fixed = entry.fields(Manner())
    for tokens in (5, None):
        fields = {"inputs": ""} | fixed
        entry.ask_length(fields, tokens)
    assert fixed == {"parameters": {"details": True}}


def test_embeddings_and_rerank_neither_stream_nor_ask_for_tokens() -> None:
    assert body("embeddings", [1, 2, 3]) == {"model": "m", "input": [1, 2, 3]}
    assert body("rerank", "query\nfirst\nsecond", extra={"top_n": 1}) == {
        "model": "m", "query": "query", "documents": ["first", "second"], "top_n": 1,
    }  # fmt: skip


def test_a_prompt_of_one_line_becomes_a_query_and_documents_that_lose_nothing() -> None:
    words = [f"w{number}" for number in range(100)]
    query, documents = query_and_documents(" ".join(words))
    assert len(documents) == 8
    assert " ".join([query, *documents]).split() == words
    assert query_and_documents("one") == ("one", ["one"])


def test_a_template_is_filled_as_inside_of_a_json_string() -> None:
    filled = template_body('{"input": "{prompt}", "max_new_tokens": 128}', 'say "hi"\n{prompt}')
    assert orjson.loads(filled) == {"input": 'say "hi"\n{prompt}', "max_new_tokens": 128}


# -- Responses (OpenAI API reference, "Streaming events") ------------------------------------------------------

RESPONSES = """
event: response.created
data: {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","status":"in_progress","output":[],"usage":null}}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":1,"output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","sequence_number":2,"item_id":"rs_1","delta":"Let me"}

event: response.reasoning_summary_text.done
data: {"type":"response.reasoning_summary_text.done","sequence_number":3,"item_id":"rs_1","text":"Let me"}

event: response.output_item.added
data: {"type":"response.output_item.added","sequence_number":4,"output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[]}}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":5,"item_id":"msg_1","output_index":1,"content_index":0,"delta":"Hello"}

event: response.output_text.delta
data: {"type":"response.output_text.delta","sequence_number":6,"item_id":"msg_1","output_index":1,"content_index":0,"delta":" there"}

event: response.output_text.done
data: {"type":"response.output_text.done","sequence_number":7,"item_id":"msg_1","text":"Hello there"}

event: response.completed
data: {"type":"response.completed","sequence_number":8,"response":{"id":"resp_1","object":"response","status":"completed","output":[{"type":"reasoning"},{"type":"message","content":[{"type":"output_text","text":"Hello there"}]}],"usage":{"input_tokens":36,"input_tokens_details":{"cached_tokens":32},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":6},"total_tokens":45}}}
"""  # noqa: E501


def test_responses_reasoning_is_a_token_but_not_visible() -> None:
    answer = stream("responses", RESPONSES)
    assert answer.tokens == [0, 0, 3, 0, 0, 3, 3, 0, 0]  # three deltas, scaled to the nine tokens of the usage
    assert (answer.visible_event, "".join(answer.text)) == (5, "Hello there")
    assert (answer.done, answer.finish_reason, answer.request_id, answer.error) == (True, "stop", "resp_1", None)
    assert answer.usage == {
        "prompt_tokens": 36, "completion_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 32}, "completion_tokens_details": {"reasoning_tokens": 6},
    }  # fmt: skip


def test_responses_function_calls_are_tokens() -> None:
    answer = stream(
        "responses",
        """
data: {"type":"response.output_item.added","item":{"type":"function_call","name":"weather","arguments":""}}

data: {"type":"response.function_call_arguments.delta","delta":"{\\"city\\":"}

data: {"type":"response.function_call_arguments.delta","delta":"\\"Oslo\\"}"}

data: {"type":"response.completed","response":{"status":"completed","output":[{"type":"function_call"}],"usage":null}}
""",
    )
    assert answer.tokens == [1, 1, 1, 0]
    assert (answer.visible_event, answer.finish_reason) == (None, "tool_calls")


@pytest.mark.parametrize(
    ("event", "error"),
    [
        ('{"type":"error","code":"server_error","message":"Overloaded","param":null}', "Overloaded"),
        (
            '{"type":"response.failed","response":{"id":"r","status":"failed","output":[],"error":{"code":"x","message":"Broken"}}}',
            "Broken",
        ),
    ],
)
def test_responses_errors_in_mid_stream(event: str, error: str) -> None:
    started = 'data: {"type":"response.output_text.delta","delta":"Hel"}\n\n'
    answer = stream("responses", f"{started}data: {event}\n\n")
    assert (answer.error, answer.tokens) == (error, [1, 0])


def test_responses_that_are_cut_by_their_limit_say_so() -> None:
    document = {
        "id": "r", "object": "response", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hel"}]}],
        "usage": {"input_tokens": 3, "output_tokens": 1},
    }  # fmt: skip
    answer = whole("responses", document)
    assert (answer.finish_reason, answer.tokens, answer.text, answer.error) == ("length", [1], ["Hel"], None)


# -- Anthropic (Claude documentation, "Streaming messages") ----------------------------------------------------

ANTHROPIC = """
event: message_start
data: {"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m", "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 25, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5, "output_tokens": 1}}}

event: content_block_start
data: {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}

event: ping
data: {"type": "ping"}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Let me solve this"}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "EqQBCgIYAhIM1gbcDa9GJwZA"}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 0}

event: content_block_start
data: {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hello"}}

event: content_block_stop
data: {"type": "content_block_stop", "index": 1}

event: content_block_start
data: {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": ""}}

event: content_block_delta
data: {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{\\"location\\":"}}

event: message_delta
data: {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": null}, "usage": {"output_tokens": 8}}

event: message_stop
data: {"type": "message_stop"}
"""  # noqa: E501


def test_anthropic_thinking_text_and_tool_calls() -> None:
    answer = stream("anthropic", ANTHROPIC)
    bearing = [number for number, tokens in enumerate(answer.tokens) if tokens]
    assert bearing == [3, 7, 9, 11]  # a thought, a text, the name of a tool, its arguments
    assert (sum(answer.tokens), answer.visible_event, "".join(answer.text)) == (8, 7, "Hello")
    assert (answer.done, answer.finish_reason, answer.request_id) == (True, "tool_calls", "msg_1")
    assert answer.usage == {
        "prompt_tokens": 130, "prompt_tokens_details": {"cached_tokens": 100}, "completion_tokens": 8,
    }  # fmt: skip


def test_anthropic_errors_in_mid_stream() -> None:
    events = (
        'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"H"}}\n\n'
    )
    events += (
        'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}\n\n'
    )
    answer = stream("anthropic", events)
    assert (answer.error, answer.done, answer.tokens) == ("Overloaded", False, [1, 0])


def test_anthropic_events_of_a_kind_to_come_are_passed_over() -> None:
    answer = stream("anthropic", 'data: {"type": "content_block_review", "index": 0}\n\n')
    assert (answer.error, answer.tokens) == (None, [0])


def test_an_anthropic_answer_in_one_piece() -> None:
    document = {
        "id": "msg_1", "type": "message", "role": "assistant", "stop_reason": "end_turn",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "Hi!"}],
        "usage": {"input_tokens": 10, "output_tokens": 6},
    }  # fmt: skip
    answer = whole("anthropic", document)
    assert (answer.tokens, answer.text, answer.finish_reason) == ([6], ["Hi!"], "stop")


# -- Text Generation Inference (its OpenAPI, "generate_stream") ------------------------------------------------

TGI = """
data:{"index":1,"token":{"id":264,"text":" a","logprob":-0.9,"special":false},"generated_text":null,"details":null}

data:{"index":2,"token":{"id":1296,"text":" test","logprob":-0.3,"special":false},"generated_text":null,"details":null}

data:{"index":3,"token":{"id":2,"text":"</s>","logprob":-0.1,"special":true},"generated_text":" a test","details":{"finish_reason":"eos_token","generated_tokens":3,"seed":null,"input_length":17}}
"""  # noqa: E501


def test_tgi_counts_every_token_and_does_not_count_its_text_twice() -> None:
    answer = stream("tgi", TGI)
    assert (answer.tokens, answer.visible_event, "".join(answer.text)) == ([1, 1, 1], 0, " a test")
    assert (answer.done, answer.finish_reason) == (True, "stop")
    assert answer.usage == {"prompt_tokens": 17, "completion_tokens": 3}


def test_tgi_errors_in_mid_stream() -> None:
    answer = stream("tgi", 'data:{"error":"Request failed during generation","error_type":"generation"}\n\n')
    assert answer.error == "Request failed during generation"


def test_tgi_in_one_piece() -> None:
    details = {"finish_reason": "length", "generated_tokens": 2, "prefill": [{"id": 1}, {"id": 5}], "tokens": []}
    answer = whole("tgi", {"generated_text": " a test", "details": details})
    assert (answer.tokens, answer.finish_reason, answer.usage) == (
        [2], "length", {"prompt_tokens": 2, "completion_tokens": 2},
    )  # fmt: skip


# -- no tokens -------------------------------------------------------------------------------------------------


def test_embeddings_are_whole_or_wrong() -> None:
    vector = {"object": "embedding", "index": 0, "embedding": [0.1, -0.2]}
    answer = whole("embeddings", {"object": "list", "data": [vector], "usage": {"prompt_tokens": 8, "total_tokens": 8}})
    assert (answer.error, answer.done, answer.tokens, answer.usage) == (
        None, True, [0], {"prompt_tokens": 8, "total_tokens": 8},
    )  # fmt: skip
    assert whole("embeddings", {"object": "list", "data": []}).error is not None
    assert whole("embeddings", {"error": {"message": "no such model"}}).error == "no such model"


@pytest.mark.parametrize(
    "counts",
    [
        {"usage": {"total_tokens": 56}},
        {"usage": {"prompt_tokens": 56, "total_tokens": 60}},
        {"meta": {"tokens": {"input_tokens": 56}, "billed_units": {"search_units": 1}}},
    ],
)
def test_rerank_as_vllm_jina_and_cohere_answer(counts: dict[str, Any]) -> None:
    results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]
    answer = whole("rerank", {"id": "r-1", "results": results} | counts)
    assert (answer.error, answer.usage) == (None, {"prompt_tokens": 56})
    assert whole("rerank", {"results": [{"index": 0}]}).error is not None


# -- a server of one's own -------------------------------------------------------------------------------------


def pieces(text: str, *cuts: int, kind: str = "text/plain", complete: bool = True) -> tuple[Answer, list[int], bytes]:
    """An answer in chunks, a read for each."""
    data, parts, at = text.encode(), [], 0
    for cut in (*cuts, len(data)):
        parts.append(data[at:cut])
        at = cut
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    reads = [head, *(b"%x\r\n%b\r\n" % (len(part), part) for part in parts), *([b"0\r\n\r\n"] if complete else [])]
    parsed = parse_head(head)
    assert parsed is not None
    answer, ends = all_at_once(reading_pieces(api_of("template"), reads, parsed, complete, keep_text=True))
    return answer, ends, b"".join(reads)


def test_bare_text_is_counted_by_its_length_read_by_read() -> None:
    answer, ends, raw = pieces("Hello there, how are you?", 5, 12)
    assert "".join(answer.text) == "Hello there, how are you?"
    assert answer.tokens == [0, 1, 2, 3, 0]  # the head, 5, 7 and 13 characters, the last chunk
    assert (answer.by_length, answer.visible_event, answer.done, ends[-1]) == (True, 1, True, len(raw))


def test_a_character_in_two_reads_is_one_character() -> None:
    answer, _, _ = pieces("größer", 3)
    assert "".join(answer.text) == "größer"


def test_lines_of_json_end_where_their_lines_do() -> None:
    lines = (
        '{"model":"m","created_at":"2026-01-01T00:00:00Z","response":"Hello","done":false}\n'
        '{"model":"m","created_at":"2026-01-01T00:00:01Z","response":" you","done":false}\n'
        '{"model":"m","created_at":"2026-01-01T00:00:02Z","response":"","done":true,"done_reason":"stop",'
        '"prompt_eval_count":26,"eval_count":4}\n'
    )
    first = lines.index("\n") + 1
    answer, ends, raw = pieces(lines, 10, first, kind="application/x-ndjson")
    assert ("".join(answer.text), answer.tokens, answer.finish_reason) == ("Hello you", [2, 2, 0], "stop")
    assert answer.usage is not None and answer.usage["prompt_tokens"] == 26
    assert raw[: ends[0]].endswith(b'"done":false}\n')


def test_a_cut_answer_of_lines_gives_the_whole_ones() -> None:
    answer, ends, _ = pieces('{"text":"a"}\n{"text":"b"}\n{"te', complete=False)
    assert (answer.text, len(ends)) == (["a", "b"], 2)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([{"generated_text": "Hello"}], "Hello"),
        ({"outputs": [{"text": "Hello", "index": 0}], "model_version": "a-long-name-of-a-version"}, "Hello"),
        ({"predictions": ["Hello"], "deployed_model_id": "1234567890"}, "Hello"),
        ({"candidates": [{"content": {"parts": [{"text": "Hello"}], "role": "model"}}]}, "Hello"),
        ({"message": {"role": "assistant", "content": "Hello"}, "done": True}, "Hello"),
        ({"reply": "Hello", "id": "a much longer text that is no answer"}, "Hello"),
        ("Hello", "Hello"),
    ],
)
def test_any_text_that_comes_back_is_the_answer(document: Any, text: str) -> None:
    answer, _, _ = pieces(orjson.dumps(document).decode(), kind="application/json")
    assert (answer.text, answer.tokens, answer.by_length, answer.error) == ([text], [1], True, None)


def test_an_event_that_is_not_json_is_text() -> None:
    answer = stream("template", "data: Hello\n\ndata:  there\n\ndata: [DONE]\n\n")
    assert ("".join(answer.text), answer.tokens, answer.done) == ("Hello there", [1, 1, 0], True)


def test_running_counts_are_used_where_a_server_has_them() -> None:
    counts = {"id": "a", "prompt_tokens": 5}
    ends = {"finish_reason": {"type": "length"}}
    events = [
        {"text": "Hello", "meta_info": counts | {"completion_tokens": 2}},
        {"text": "Hello you", "meta_info": counts | {"completion_tokens": 3} | ends},
    ]
    answer = stream("template", "".join(f"data: {orjson.dumps(event).decode()}\n\n" for event in events))
    assert (answer.tokens, answer.running_usage, answer.finish_reason) == ([2, 1], True, "length")


def test_an_error_is_an_error_and_not_an_answer() -> None:
    assert pieces('{"error": "out of memory"}')[0].error == "out of memory"
    assert stream("template", 'data: {"error": {"message": "gone"}}\n\n').error == "gone"


FUNCTION = {"name": "look_up", "description": "reads", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize(
    ("api", "tool", "choice"),
    [
        ("chat", {"type": "function", "function": FUNCTION}, "required"),
        ("responses", {"type": "function", **FUNCTION}, "required"),
        (
            "anthropic",
            {"name": "look_up", "description": "reads", "input_schema": FUNCTION["parameters"]},
            {"type": "any"},
        ),
    ],
)
def test_tools_in_the_form_of_each_api(api: str, tool: Any, choice: Any) -> None:
    convert = api_of(api).tools
    assert convert is not None
    own = {"model": "m", "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}
    assert convert(own) == {"model": "m", "tools": [tool], "tool_choice": choice}


@pytest.mark.parametrize("count", [None, True, "5", 5.0])
def test_text_is_counted_where_the_usage_is_no_count(count: Any) -> None:
    """In a document, and in events that each state a running one."""
    choices = [{"text": "x" * 8, "finish_reason": "length"}]
    document = {"choices": choices, "usage": {"prompt_tokens": 4, "completion_tokens": count}}
    answer = read_whole(api_of("completions"), orjson.dumps(document))
    assert (answer.error, answer.tokens, answer.by_length) == (None, [2], True)
    streamed = read_events(api_of("completions"), [orjson.dumps(document)] * 3)
    assert (streamed.error, list(streamed.tokens), streamed.running_usage) == (None, [1, 1, 1], False)
