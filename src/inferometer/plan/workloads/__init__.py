"""The `workload` of a plan: a union of one section per kind, distinguished by `type` or, without it, by the fields."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Discriminator, GetJsonSchemaHandler, Tag
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from inferometer.plan import short
from inferometer.plan.fields import Mistake, SectionError
from inferometer.plan.workloads.lengths import Lengths, WorkloadSection
from inferometer.plan.workloads.recorded import (
    Azure,
    BurstGpt,
    HuggingFace,
    HumanEval,
    Messages,
    Mooncake,
    MtBench,
    Oasst,
    Otel,
    Prompts,
    ShareGpt,
    Sonnet,
    Table,
    Trace,
    TraceFile,
    Weka,
)
from inferometer.plan.workloads.synthetic import ConversationPieces, FixedText, Synthetic

__all__ = ["TYPES", "Lengths", "Synthetic", "TraceFile", "Workload", "WorkloadSection", "section_of"]


class _AnyOf:
    """In the schema a workload may fit several kinds: an empty one fits all."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        schema.pop("discriminator", None)
        return {"anyOf": schema.pop("oneOf"), **schema} if "oneOf" in schema else schema


def _type_tag(value: Any) -> str:
    """The tag of a value's kind; its prefix distinguishes it from field names."""
    named = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return f"type {named or short.workload_type(value)}"


def _typed(value: Any) -> Any:
    """An unknown type is an error here, with the list of the known ones."""
    if isinstance(value, WorkloadSection):
        return value
    if not isinstance(value, Mapping):
        raise ValueError("must be settings by name such as type, input_tokens, output_tokens")
    named = value["type"] if value.get("type") is not None else short.workload_type(value)
    if named is None:
        file = value.get("path") or value.get("url")
        unnamed = f"is missing, and does not follow from the name {file}: must be one of {', '.join(TYPES)}"
        raise SectionError([Mistake(("type",), f"{unnamed}; as a flag: --dataset sharegpt={file}")])
    if not isinstance(named, str) or named not in TYPES:
        raise SectionError([Mistake(("type",), f"must be one of {', '.join(TYPES)}, got {named}{_closest(named)}")])
    return {**value, "type": named}


def _closest(named: Any) -> str:
    close = difflib.get_close_matches(str(named), TYPES, n=1)
    return f"; did you mean {close[0]}?" if close else ""


Workload = Annotated[
    Annotated[Synthetic, Tag("type synthetic")]
    | Annotated[ShareGpt, Tag("type sharegpt")]
    | Annotated[Messages, Tag("type messages")]
    | Annotated[Oasst, Tag("type oasst")]
    | Annotated[MtBench, Tag("type mt_bench")]
    | Annotated[HumanEval, Tag("type humaneval")]
    | Annotated[Sonnet, Tag("type sonnet")]
    | Annotated[Prompts, Tag("type prompts")]
    | Annotated[Table, Tag("type table")]
    | Annotated[HuggingFace, Tag("type huggingface")]
    | Annotated[Azure, Tag("type azure")]
    | Annotated[Mooncake, Tag("type mooncake")]
    | Annotated[BurstGpt, Tag("type burstgpt")]
    | Annotated[Trace, Tag("type trace")]
    | Annotated[Otel, Tag("type otel")]
    | Annotated[Weka, Tag("type weka")]
    | Annotated[FixedText, Tag("type text")]
    | Annotated[ConversationPieces, Tag("type conversation_pieces")],
    Discriminator(_type_tag),
    BeforeValidator(_typed),
    _AnyOf,
]

TYPES: dict[str, type[WorkloadSection]] = {
    get_args(kind)[0].model_fields["type"].default: get_args(kind)[0] for kind in get_args(get_args(Workload)[0])
}


def section_of(value: Any) -> type[WorkloadSection] | None:
    """The kind of workload of a mapping, by its type or its fields."""
    if isinstance(value, WorkloadSection):
        return type(value)
    if not isinstance(value, Mapping):
        return None
    return TYPES.get(str(value.get("type") or short.workload_type(value) or ""))
