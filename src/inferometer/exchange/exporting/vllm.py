"""The JSON of `vllm bench serve`, `latency` and `throughput`: the numbers by vLLM's definitions if there are
records, else the numbers of the run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from inferometer.documents.document import JsonValue
from inferometer.exchange.exporting import (
    DocumentField,
    DocumentPiece,
    DocumentRows,
    ExportRequest,
    concurrency_of,
    duration_of,
    json_piece,
    label_of,
    load_of,
    long_json_piece,
    of_kind,
    rate_of,
    seen_by_others,
    started,
)
from inferometer.measure.inputs import Answers
from inferometer.measure.rosetta import (
    MS,
    SeenRequests,
    input_lengths,
    messages,
    our_statistic,
    output_lengths,
    posted_at,
    statistic,
    total,
)
from inferometer.measure.rosetta import vllm as rosetta
from inferometer.measure.values import Quantity, quantities
from inferometer.record.files import write_text
from inferometer.record.run import Run
from inferometer.record.sanitize import file_name_part
from inferometer.record.summary import Summary
from inferometer.vocabulary import NANOSECONDS

# -- vllm latency ----------------------------------------------------------------------------------------------------

LATENCY_PERCENTILES = (10, 25, 50, 75, 90, 99)


class LatencyDocument(TypedDict):
    avg_latency: float
    latencies: list[float]
    percentiles: dict[str, float]


class ThroughputDocument(TypedDict):
    elapsed_time: float | None
    num_requests: int | None
    total_num_tokens: int | None
    requests_per_second: float | None
    tokens_per_second: float | None


def latency_document(latencies: Sequence[float]) -> LatencyDocument:
    """The document of `vllm bench latency --output-json`."""
    percentiles = np.percentile(np.array(latencies), LATENCY_PERCENTILES)
    return {
        "avg_latency": float(np.mean(latencies)),
        "latencies": list(latencies),
        "percentiles": {str(name): float(value) for name, value in zip(LATENCY_PERCENTILES, percentiles, strict=True)},
    }


def throughput_document(summary: Summary) -> ThroughputDocument:
    """The document of `vllm bench throughput --output-json`."""
    return {
        "elapsed_time": summary.values["elapsed"].value,
        "num_requests": summary.requests,
        "total_num_tokens": _sum(summary.input_tokens, summary.output_tokens),
        "requests_per_second": summary.rates["request_rate"].value,
        "tokens_per_second": summary.rates["total_rate"].value,
    }


def _sum(inputs: int | None, outputs: int | None) -> int | None:
    return None if inputs is None or outputs is None else inputs + outputs


def write_latency_files(summary: Summary, prefix: str) -> list[Path]:
    """A file per measured case, `{prefix}{bs}.json`; the name has the lengths if there are several."""
    cases = [case for case in summary.cases if case.name in summary.measures]
    return [
        write_document(latency_document(case.latencies), Path(f"{prefix}{case.name.removeprefix('latency_bs')}.json"))
        for case in cases
    ]


def write_document(document: LatencyDocument | ThroughputDocument, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(document, indent=4))
    return path


# -- vllm ------------------------------------------------------------------------------------------------------------

PERCENTILES = (25, 50, 75, 90, 95, 99, 99.9)
STATISTICS: dict[str, float | None] = {"mean": None, "median": 0.5, "std": None} | {
    f"p{p:g}": p / 100 for p in PERCENTILES
}
OUR_MEASURES = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
RATES = {
    "request_throughput": "request_rate",
    "output_throughput": "output_rate",
    "total_token_throughput": "total_rate",
}


def export(request: ExportRequest) -> list[DocumentPiece]:
    return [piece for run in request.runs for piece in of_kind(run, _KINDS, "vLLM's JSON")(run, request.detailed)]


def serve_document(run: Run, detailed: bool = False) -> dict[str, JsonValue]:
    """The document of `vllm bench serve --save-result`; with arrays, that of `--save-detailed`."""
    document = _serve_document(run, detailed)
    return {
        key: [row for rows in value.batches() for row in rows] if isinstance(value, DocumentRows) else value
        for key, value in document.items()
    }


def _serve_document(run: Run, detailed: bool) -> dict[str, DocumentField]:
    """The document, with per-read arrays as `DocumentRows`."""
    records = run.records
    if records is None:
        return _head(run) | _from_summary(run) | _speculation(run)
    seen = seen_by_others(run, records)
    measured = _peaks(seen) | _statistics(seen) | _speculation(run)
    return _head(run) | _counts(run, seen) | (_arrays(seen) if detailed else {}) | measured


def _speculation(run: Run) -> dict[str, DocumentField]:
    """vLLM's fields of speculative decoding, if the server uses it: the rate is in percent."""
    values = quantities(run.summary)
    rate, length = (_value(values, f"server_acceptance_{name}") for name in ("rate", "length"))
    if length is None:
        return {}
    document: dict[str, DocumentField] = {
        "spec_decode_acceptance_rate": None if rate is None else rate * 100,
        "spec_decode_acceptance_length": length,
    }
    counted = run.summary.server.speculation if run.summary.server else None
    if counted is None or counted.drafts is None:
        return document
    return document | {
        "spec_decode_num_drafts": _count(counted.drafts),
        "spec_decode_draft_tokens": _count(counted.draft_tokens),
        "spec_decode_accepted_tokens": _count(counted.accepted_tokens),
    }


def _count(amount: float | None) -> int | None:
    return None if amount is None else round(amount)


def _head(run: Run) -> dict[str, DocumentField]:
    rate = rate_of(run)
    variation = load_of(run).number("cv")
    return {
        "date": started(run).strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": _backend(run),
        "backend": _backend(run),
        "label": label_of(run, run.plan.name),
        "model_id": run.subject.model,
        "tokenizer_id": run.plan.tokenizer or run.subject.model,
        "num_prompts": sum(run.summary.outcomes.values()) or None,
        "request_rate": "inf" if rate is None else rate,
        "burstiness": 1.0 if not variation else 1.0 / variation**2,
        "max_concurrency": concurrency_of(run),
    }


def _backend(run: Run) -> str:
    """vLLM's name of the backend."""
    if run.plan.api == "chat":
        return "openai-chat"
    return "vllm" if run.subject.engine in (None, "vLLM", "simulator") else "openai"


def _counts(run: Run, seen: SeenRequests) -> dict[str, DocumentField]:
    inputs, outputs = total(input_lengths(seen.good)), total(output_lengths(seen.good))
    figures = {figure.field: figure.value(seen) for figure in rosetta.VLLM.figures}
    good = quantities(run.summary).get("goodput")
    return {
        "num_prompts": len(seen.every),
        "duration": rosetta.lasted_s(seen),
        "completed": len(seen.good),
        "failed": len(seen.every) - len(seen.good),
        "total_input_tokens": round(inputs),
        "total_output_tokens": round(outputs),
        "request_throughput": figures["request_throughput"],
        "request_goodput": None if good is None else good.value,
        "output_throughput": figures["output_throughput"],
        "total_token_throughput": figures["total_token_throughput"],
    }


def _peaks(seen: SeenRequests) -> dict[str, DocumentField]:
    figures = {figure.field: figure.value(seen) for figure in rosetta.VLLM.figures}
    at_once = figures["max_concurrent_requests"]
    return {
        "max_output_tokens_per_s": figures["max_output_tokens_per_s"],
        "max_concurrent_requests": None if at_once is None else int(at_once),
        "rtfx": 0.0,  # audio seconds per second: we send none
    }


def _statistics(seen: SeenRequests) -> dict[str, DocumentField]:
    statistics: dict[str, DocumentField] = {}
    for spread in rosetta.VLLM.spreads:
        series = spread.series(seen)
        for stat, share in STATISTICS.items():
            value = statistic(series, stat, share, rosetta.VLLM.quantile)
            statistics[spread.field.format(stat)] = None if value is None else value * spread.scale
    return statistics


def _arrays(seen: SeenRequests) -> dict[str, DocumentField]:
    """One entry per request. vLLM writes 0 and an empty list for failed requests; its start times are seconds on an
    arbitrary clock, ours begin with the first request."""
    records, ok = seen.every.records, seen.every.ok
    start_s = (posted_at(seen.every) - int(records.scheduled_at[0])) / NANOSECONDS if len(records) else np.empty(0)
    first_s = (seen.every.first_at - posted_at(seen.every)) / NANOSECONDS
    return {
        "input_lens": _whole(input_lengths(seen.every)),
        "output_lens": _whole(np.where(ok, output_lengths(seen.every), 0)),
        "ttfts": np.where(ok, first_s, 0.0).tolist(),
        "itls": DocumentRows(lambda: _gaps(seen.every)),
        "start_times": np.where(ok, start_s, 0.0).tolist(),
        "generated_texts": [text or "" for text in records.answer],
        "errors": ["" if fine else text or outcome for fine, text, outcome in _failures(seen)],
    }


def _gaps(answers: Answers) -> Iterator[list[list[float]]]:
    """The gaps between the messages of each answer; messages in the same read have gap 0."""
    for reads in answers.records.reads_in_order(None, ("read_at", "read_tokens")):
        stamps, ok = messages(answers, reads), answers.ok[reads.owner]
        edges = pairwise(reads.offsets.tolist())
        yield [
            (np.diff(np.repeat(reads.at[start:end], stamps[start:end])) / NANOSECONDS).tolist() if fine else []
            for fine, (start, end) in zip(ok, edges, strict=True)
        ]


def _failures(seen: SeenRequests) -> list[tuple[bool, str | None, str]]:
    records = seen.every.records
    outcomes = records.outcome.texts()
    return [
        (bool(fine), text, str(outcome))
        for fine, text, outcome in zip(seen.every.ok, records.error, outcomes, strict=True)
    ]


def _whole(lengths: Any) -> list[int]:
    return [round(float(length)) for length in np.nan_to_num(lengths)]


def _from_summary(run: Run) -> dict[str, DocumentField]:
    """The values of a run without records, in milliseconds; missing ones stay missing."""
    values = quantities(run.summary)
    outcomes = run.summary.outcomes
    done = outcomes.get("ok")
    document: dict[str, DocumentField] = {"duration": duration_of(run), "completed": done}
    if outcomes:
        document["failed"] = sum(outcomes.values()) - (done or 0)
    for side in ("input", "output"):
        document[f"total_{side}_tokens"] = _total(values, side, done)
    document |= {field: _value(values, key) for field, key in RATES.items()}
    document["request_goodput"] = _value(values, "goodput") or _value(values, "request_goodput")
    for theirs, ours in OUR_MEASURES.items():
        for stat in STATISTICS:
            value = _value(values, f"{ours}.{our_statistic(stat)}")
            if value is not None:
                document[f"{stat}_{theirs}_ms"] = value * MS
    return document


def _total(values: Mapping[str, Quantity], side: str, done: int | None) -> int | None:
    total = _value(values, f"total_{side}_tokens")
    mean = _value(values, f"{side}_tokens.mean")
    if total is None and mean is not None and done is not None:
        total = mean * done
    return None if total is None else round(total)


def _value(values: Mapping[str, Quantity], key: str) -> float | None:
    quantity = values.get(key)
    return None if quantity is None else quantity.value


def latency_documents(run: Run) -> dict[str, LatencyDocument]:
    """One per batch size, by the name of its case, in seconds."""
    return {case.name: latency_document(case.latencies) for case in run.summary.cases if case.latencies}


def _serve_pieces(run: Run, detailed: bool) -> list[DocumentPiece]:
    return [long_json_piece(f"vllm_bench_serve_{run.id}.json", _serve_document(run, detailed))]


def _latency_pieces(run: Run, detailed: bool) -> list[DocumentPiece]:
    return [json_piece(f"{file_name_part(name)}.json", content) for name, content in latency_documents(run).items()]


def _throughput_pieces(run: Run, detailed: bool) -> list[DocumentPiece]:
    return [json_piece(f"vllm_bench_throughput_{run.id}.json", throughput_document(run.summary))]


_KINDS = {"serving": _serve_pieces, "latency": _latency_pieces, "throughput": _throughput_pieces}
