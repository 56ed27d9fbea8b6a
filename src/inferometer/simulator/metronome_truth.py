"""The metronome's log read back, and a client's records held against it. All instants are on one machine's clock."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from inferometer.record.columns import Ints, Mask, Records, known, offsets_of


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """What the metronome did: request i sent its tokens at `sent_at[offsets[i]:offsets[i + 1]]`."""

    ids: list[str]
    received_at: Ints
    first_due_at: Ints
    offsets: Ints
    sent_at: Ints  # just before the send
    took_ns: Ints  # 0, or the span of a send that was held up: it happened somewhere in there
    interval_ns: int

    @classmethod
    def read(cls, data: bytes) -> "Truth":
        """From the bytes of `GET /truth`."""
        line, _, instants = data.partition(b"\n")
        facts: Mapping[str, Any] = json.loads(line)
        offsets = offsets_of(np.array(facts["sent"], np.int64))
        took_ns = np.zeros(offsets[-1], np.int64)
        for request, event, span in facts["held"]:
            took_ns[offsets[request] + event] = span
        return cls(
            ids=facts["id"],
            received_at=np.array(facts["received_at"], np.int64),
            first_due_at=np.array(facts["first_due_at"], np.int64),
            offsets=offsets,
            sent_at=np.frombuffer(instants, np.int64),
            took_ns=took_ns,
            interval_ns=facts["interval_ns"],
        )

    @classmethod
    def together(cls, parts: Sequence["Truth"]) -> "Truth":
        """Of several that shared a port."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            ids=[each for part in parts for each in part.ids],
            received_at=np.concatenate([part.received_at for part in parts]),
            first_due_at=np.concatenate([part.first_due_at for part in parts]),
            offsets=offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            sent_at=np.concatenate([part.sent_at for part in parts]),
            took_ns=np.concatenate([part.took_ns for part in parts]),
            interval_ns=parts[0].interval_ns,
        )

    def since_sent(self, event: Ints, at: Ints) -> Ints:
        """From the sends of events to the given instants; 0 for an instant inside the span of a held-up send."""
        earliest = self.sent_at[event]
        return at - np.clip(at, earliest, earliest + self.took_ns[event])

    def lateness(self) -> Ints:
        """How much later than its deadline every event was sent."""
        counts = np.diff(self.offsets)
        number = np.arange(len(self.sent_at)) - np.repeat(self.offsets[:-1], counts)
        return self.sent_at - (np.repeat(self.first_due_at, counts) + number * self.interval_ns)

    def events_per_s(self) -> float:
        """Between the first and the last send; the pause before the first tokens of a round counts."""
        span_ns = int(self.sent_at.max() - self.sent_at.min()) if len(self.sent_at) > 1 else 0
        return (len(self.sent_at) - 1) / span_ns * 1e9 if span_ns else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class Comparison:
    """A client's reads against the sends of their tokens, in nanoseconds; one entry per token-bearing read, the
    `request_*` ones per request. An error is positive where the client was late."""

    read_error: Ints  # read_at - send of the newest token of the read
    oldest: Ints  # read_at - send of its oldest token: must lie within `slack`
    slack: Ints
    request_ttft: Ints  # as the client saw it: first read - sent_at
    request_true_ttft: Ints  # as the server did it: first send - received_at
    request_error: Ints  # first read - send of its newest token: the error that is the client's
    unmatched: int  # requests of the records that the truth does not know, or with tokens that it did not send

    def inside(self, allowance_ns: int) -> Mask:
        """Reads whose tokens were all sent within the stated uncertainty; the allowance is for the way through the
        kernel, which no one can see, and for converting between two clocks."""
        return (self.read_error >= -allowance_ns) & (self.oldest <= self.slack + allowance_ns)


def compare(records: Records, truth: Truth) -> Comparison:
    """Join records and truth on the answer's id, and every read to the sends of its tokens."""
    place = {answer_id: i for i, answer_id in enumerate(truth.ids)}
    found = np.array([place.get(answer_id, -1) for answer_id in records.request_id], np.int64)
    whole = _tokens(records) <= np.diff(truth.offsets)[found]
    usable = (found >= 0) & whole & (records.read_counts() > 0) & known(records.sent_at)
    chosen, found = records.take(usable), found[usable]
    counts, begins = chosen.read_counts(), chosen.read_offsets[:-1]
    upto = np.cumsum(chosen.read_tokens)
    upto -= np.repeat((upto - chosen.read_tokens)[begins], counts)  # tokens of the request up to and with the read
    base = np.repeat(truth.offsets[:-1][found], counts)
    read_error = truth.since_sent(base + upto - 1, chosen.read_at)
    return Comparison(
        read_error=read_error,
        oldest=truth.since_sent(base + upto - chosen.read_tokens, chosen.read_at),
        slack=chosen.read_slack,
        request_ttft=chosen.read_at[begins] - chosen.sent_at,
        request_true_ttft=truth.sent_at[truth.offsets[:-1][found]] - truth.received_at[found],
        request_error=read_error[begins],
        unmatched=len(records) - len(chosen),
    )


def _tokens(records: Records) -> Ints:
    """Tokens of each record's reads together."""
    upto: Ints = np.concatenate([np.zeros(1, np.int64), np.cumsum(records.read_tokens)])
    tokens: Ints = upto[records.read_offsets[1:]] - upto[records.read_offsets[:-1]]
    return tokens


def quantile_s(values_ns: Ints, q: float) -> float | None:
    """A quantile of nanoseconds in seconds; None without any."""
    if not len(values_ns):
        return None
    return float(np.quantile(values_ns, q, method="inverted_cdf")) / 1e9
