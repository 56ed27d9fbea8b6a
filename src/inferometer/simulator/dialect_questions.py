"""Reads the bodies of other APIs than completions and chat, into what the engine is asked for."""

from typing import Any

from inferometer.simulator.questions import Question, asked_for, bad, check_model, read_json
from inferometer.simulator.settings import SimulatorSettings

TGI_TOKENS = 100  # that TGI makes where none are asked for


def _question(prompts: list[Any], asked: dict[str, Any], settings: SimulatorSettings, **more: Any) -> Question:
    wanted = {name: value for name, value in asked.items() if value is not None}
    return Question(
        chat=False,
        include_usage=True,
        continuous_usage=False,
        asked=[asked_for(prompt, wanted, chat=True, settings=settings) for prompt in prompts],
        **{"stream": False} | more,
    )


def read_responses(body: bytes, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    given = fields.get("input")
    if not isinstance(given, str | list) or not given:
        raise bad("input must be a text or a list of items", "input")
    prompt = [{"role": "user", "content": given}] if isinstance(given, str) else given
    asked = {"max_tokens": fields.get("max_output_tokens"), "ignore_eos": fields.get("ignore_eos")}
    question = _question([prompt], asked, settings, stream=bool(fields.get("stream")))
    if (fields.get("reasoning") or {}).get("effort"):
        question.reasoning = max(1, (fields.get("max_output_tokens") or 64) // 2)
    return question


def read_anthropic(body: bytes, settings: SimulatorSettings) -> Question:
    fields = read_json(body)
    check_model(fields, settings)
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise bad("messages must be a list of messages", "messages")
    if fields.get("max_tokens") is None:
        raise bad("max_tokens: Field required", "max_tokens")
    system = [{"role": "system", "content": fields["system"]}] if fields.get("system") else []
    asked = {"max_tokens": fields["max_tokens"], "ignore_eos": fields.get("ignore_eos")}
    question = _question([[*system, *messages]], asked, settings, stream=bool(fields.get("stream")))
    thinking = fields.get("thinking") or {}
    question.reasoning = int(thinking.get("budget_tokens") or 0) if thinking.get("type") == "enabled" else 0
    return question


def read_tgi(body: bytes, settings: SimulatorSettings, stream: bool) -> Question:
    fields = read_json(body)
    if not isinstance(fields.get("inputs"), str):
        raise bad("inputs must be a text", "inputs")
    asked = {"max_tokens": (fields.get("parameters") or {}).get("max_new_tokens", TGI_TOKENS)}
    return _question([fields["inputs"]], asked, settings, stream=stream)


def read_embeddings(body: bytes, settings: SimulatorSettings) -> Question:
    """One token of the engine's stands for the pass that makes a vector."""
    fields = read_json(body)
    check_model(fields, settings)
    given = fields.get("input")
    one = isinstance(given, str) or (isinstance(given, list) and bool(given) and isinstance(given[0], int))
    prompts = [given] if one else given
    if not isinstance(prompts, list) or not prompts or not all(isinstance(each, str | list) for each in prompts):
        raise bad("input must be a text, token ids, or a list of these", "input")
    return _question(prompts, {"max_tokens": 1}, settings)


def read_rerank(body: bytes, settings: SimulatorSettings) -> Question:
    """The query goes with every document."""
    fields = read_json(body)
    check_model(fields, settings)
    query, documents = fields.get("query"), fields.get("documents")
    if not isinstance(query, str) or not isinstance(documents, list) or not documents:
        raise bad("a query and documents are needed", "documents")
    texts = [each.get("text", "") if isinstance(each, dict) else str(each) for each in documents]
    return _question([f"{query} {text}" for text in texts], {"max_tokens": 1}, settings)
