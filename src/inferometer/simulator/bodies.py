"""Types of the bodies of the simulated APIs: the fields that are read of requests, and the answers, field for field as
vLLM 0.24 and the other servers write them."""

from typing import Any, NotRequired, TypedDict

from inferometer.documents.document import JsonValue

# -- requests ----------------------------------------------------------------------------------------------------------


class StreamOptions(TypedDict, total=False):
    include_usage: JsonValue
    continuous_usage_stats: JsonValue


class Reasoning(TypedDict, total=False):
    effort: JsonValue


class Thinking(TypedDict, total=False):
    type: JsonValue
    budget_tokens: int | None


class TgiParameters(TypedDict, total=False):
    max_new_tokens: JsonValue


class RequestBody(TypedDict, total=False):
    """The fields that the simulator reads of request bodies, of all APIs; `Structured` reads the rest."""

    model: str
    stream: JsonValue
    stream_options: StreamOptions | None
    messages: JsonValue
    prompt: JsonValue
    n: JsonValue
    max_tokens: JsonValue
    max_completion_tokens: JsonValue
    min_tokens: JsonValue
    ignore_eos: JsonValue
    text: JsonValue
    input: JsonValue  # Responses, embeddings
    max_output_tokens: int | None
    reasoning: Reasoning | None
    system: JsonValue  # Anthropic
    thinking: Thinking | None
    inputs: JsonValue  # TGI
    parameters: TgiParameters | None
    query: JsonValue  # rerank
    documents: JsonValue


Schema = TypedDict(
    "Schema",
    {
        "$ref": str,
        "const": Any,
        "enum": list[Any],
        "anyOf": list[Any],
        "oneOf": list[Any],
        "allOf": list[dict[str, JsonValue]],
        "type": str | list[str],
        "properties": dict[str, Any] | None,
        "required": list[str],
        "items": Any,
        "prefixItems": list[Any] | None,
        "minItems": int,
        "maxItems": int | None,
        "pattern": str,
        "format": str,
        "minLength": int,
        "maxLength": int | None,
        "minimum": float,
        "exclusiveMinimum": float,
        "maximum": float,
        "exclusiveMaximum": float,
        "multipleOf": float | None,
    },
    total=False,
)

# -- answers: completions and chat -------------------------------------------------------------------------------------


class Envelope(TypedDict):
    id: str
    object: str
    created: int
    model: str


class PromptDetails(TypedDict):
    cached_tokens: int


class Usage(TypedDict):
    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: NotRequired[PromptDetails]


class Delta(TypedDict):
    content: str


class ChatChoice(TypedDict):
    index: int
    delta: Delta
    logprobs: None
    finish_reason: str | None
    stop_reason: NotRequired[None]
    token_ids: None


class TextChoice(TypedDict):
    index: int
    text: str
    logprobs: None
    finish_reason: str | None
    stop_reason: None
    prompt_token_ids: None
    token_ids: None
    prompt_logprobs: NotRequired[None]  # without streaming only


class ChatMessage(TypedDict):
    role: str
    content: str
    refusal: None
    tool_calls: list[JsonValue]
    reasoning: None


class MessageChoice(TypedDict):
    index: int
    message: ChatMessage
    logprobs: None
    finish_reason: str
    stop_reason: None
    token_ids: None


# -- answers: Responses, Anthropic, TGI --------------------------------------------------------------------------------


class ReasoningText(TypedDict):
    type: str
    text: str


class OutputText(TypedDict):
    type: str
    text: str
    annotations: list[JsonValue]


class ReasoningItem(TypedDict):
    id: str
    type: str
    summary: list[JsonValue]
    content: list[ReasoningText]
    status: str


class MessageItem(TypedDict):
    id: str
    type: str
    role: str
    status: str
    content: list[OutputText]


class InputDetails(TypedDict):
    cached_tokens: int


class OutputDetails(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    reason: str


class Response(TypedDict):
    id: str
    object: str
    created_at: int
    status: str
    model: str
    output: list[ReasoningItem | MessageItem]
    error: None
    usage: ResponseUsage | None
    incomplete_details: NotRequired[IncompleteDetails | None]


class AnthropicBlock(TypedDict):
    """A text block, or a thinking block with its signature."""

    type: str
    text: NotRequired[str]
    thinking: NotRequired[str]
    signature: NotRequired[str]


class AnthropicUsage(TypedDict):
    input_tokens: int
    cache_read_input_tokens: NotRequired[int]
    cache_creation_input_tokens: NotRequired[int]
    output_tokens: int


class AnthropicMessage(TypedDict):
    id: str
    type: str
    role: str
    model: str
    content: list[AnthropicBlock]
    stop_reason: str | None
    stop_sequence: None
    usage: NotRequired[AnthropicUsage]


class TgiDetails(TypedDict):
    finish_reason: str
    seed: None
    generated_tokens: int
    input_length: int
