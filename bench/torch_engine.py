"""A small inference engine in PyTorch, to measure a GPU that has no vLLM on it: a Llama of random weights behind a
streaming OpenAI API. Continuous batching, chunked prefill, steps launched one ahead, CUDA graphs for decodes, reuse of
prefixes. It is not the simulator: every step is computed, and its time is what the GPU and the CPU make of it.

python bench/torch_engine.py [--shape 8b] [--port 0]          (needs torch; without a GPU the shape `tiny`)

The cache is one slot per sequence: `seqused_k` lets flash attention read slots in any order. A prefix that another slot
holds is copied from there. The frontend is a process of its own, as vLLM's is.
"""

import argparse
import json
import multiprocessing as mp
import os
import signal
import sys
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np

PREFIX = 16  # tokens: prefixes are reused in multiples of it, as blocks of vLLM are
GRAPHS = (1, 2, 4, *range(8, 129, 8))  # sizes of decode steps that are one CUDA graph


@dataclass(frozen=True, slots=True)
class Shape:
    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    slots: int
    max_len: int
    budget: int = 8192  # tokens of one step


SHAPES = {
    "8b": Shape(32, 4096, 32, 8, 128, 14336, 128_256, 128, 5120),
    "tiny": Shape(2, 64, 4, 2, 16, 128, 1000, 8, 512, 256),
}


class Asked(msgspec.Struct, array_like=True):
    """A request from the frontend to the engine."""

    id: int
    prompt: bytes  # token ids, int32
    output: int


class Made(msgspec.Struct, array_like=True):
    """One token, from the engine to the frontend."""

    id: int
    token: int
    cached: int
    is_last: bool


# -- the engine ------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Sequence:
    id: int
    prompt: np.ndarray
    output: int
    slot: int = -1
    computed: int = 0  # tokens in the cache once all launched steps are done
    made: int = 0
    cached: int = 0


@dataclass(slots=True)
class Step:
    """The sequences of a step with their number of tokens; those in `gives` get a token."""

    parts: list[tuple[Sequence, int]]
    gives: list[Sequence]
    copies: list[tuple[int, int, int]] = field(default_factory=list)  # from slot, to slot, tokens

    @property
    def decodes_only(self) -> bool:
        return all(tokens == 1 for _, tokens in self.parts) and len(self.gives) == len(self.parts)


class Scheduler:
    """Schedules decodes first, then started prompts, then waiting requests, within the token budget."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._free = deque(range(shape.slots))  # the least recently used first
        self._held = np.zeros((shape.slots, shape.max_len), np.int32)  # prompts whose keys and values are in a slot
        self._held_len = np.zeros(shape.slots, np.int64)

    def plan(self) -> Step | None:
        step, budget = Step([], []), self.shape.budget
        for sequence in [one for one in self.running if one.computed >= len(one.prompt)]:
            self._take(step, sequence, 1)
            budget -= 1
        for sequence in [one for one in self.running if one.computed < len(one.prompt) and one.slot >= 0]:
            budget -= self._chunk(step, sequence, budget)
        while budget > 0 and self.waiting and self._free:
            sequence = self.waiting.popleft()
            self._admit(step, sequence)
            self.running.append(sequence)
            budget -= self._chunk(step, sequence, budget)
        self.running = [one for one in self.running if one.made < one.output]
        return step if step.parts else None

    def _chunk(self, step: Step, sequence: Sequence, budget: int) -> int:
        tokens = min(len(sequence.prompt) - sequence.computed, budget)
        if tokens > 0:
            self._take(step, sequence, tokens)
            end = sequence.computed
            self._held[sequence.slot, end - tokens : end] = sequence.prompt[end - tokens : end]
            self._held_len[sequence.slot] = end
        return max(0, tokens)

    def _take(self, step: Step, sequence: Sequence, tokens: int) -> None:
        step.parts.append((sequence, tokens))
        sequence.computed += tokens
        if sequence.computed >= len(sequence.prompt):
            step.gives.append(sequence)
            sequence.made += 1
            if sequence.made == sequence.output:  # its slot is free for the next step: the GPU keeps the order
                self._free.append(sequence.slot)

    def _admit(self, step: Step, sequence: Sequence) -> None:
        source, hit = self._longest_prefix(sequence.prompt)
        if hit and source in self._free:
            self._free.remove(source)
            sequence.slot = source
        else:
            sequence.slot = self._free.popleft()
            if hit:
                step.copies.append((source, sequence.slot, hit))
                self._held[sequence.slot, :hit] = sequence.prompt[:hit]
        sequence.computed = sequence.cached = hit
        self._held_len[sequence.slot] = hit

    def _longest_prefix(self, prompt: np.ndarray) -> tuple[int, int]:
        best, longest = -1, 0
        if len(prompt) > PREFIX:
            alike = (self._held[:, :PREFIX] == prompt[:PREFIX]).all(axis=1) & (self._held_len >= PREFIX)
            for slot in np.flatnonzero(alike):
                most = min(int(self._held_len[slot]), len(prompt) - 1)
                differ = np.flatnonzero(self._held[slot, :most] != prompt[:most])
                common = int(differ[0]) if len(differ) else most
                if common > longest:
                    best, longest = int(slot), common
        return best, longest // PREFIX * PREFIX


class Llama:
    """Random weights, a cache by slots, and steps on one stream."""

    def __init__(self, shape: Shape) -> None:
        import torch

        self.torch, self.shape = torch, shape
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        s = shape
        qkv, mlp = (s.heads + 2 * s.kv_heads) * s.head, 2 * s.inner
        self.layers = [
            [
                self._weight(qkv, s.width),
                self._weight(s.width, s.heads * s.head),
                self._weight(mlp, s.width),
                self._weight(s.width, s.inner),
            ]
            for _ in range(s.layers)
        ]
        self.embedding, self.head = self._weight(s.vocabulary, s.width), self._weight(s.vocabulary, s.width)
        cache = (s.layers, (s.slots + 1) * s.max_len, s.kv_heads, s.head)  # one more slot, for the padding of graphs
        self.keys, self.values = (torch.zeros(cache, device=self.device, dtype=self.dtype) for _ in range(2))
        self.last = torch.zeros(s.slots + 1, dtype=torch.int64, device=self.device)
        turns = torch.arange(s.max_len, device=self.device)[:, None] / 10000 ** (
            torch.arange(0, s.head, 2, device=self.device) / s.head
        )
        self.cos, self.sin = turns.cos()[:, None].to(self.dtype), turns.sin()[:, None].to(self.dtype)
        self.attend = self._attention()
        self.graphs: dict[int, tuple[Any, Any, Any]] = {}
        self.cumulative = torch.arange(GRAPHS[-1] + 1, dtype=torch.int32, device=self.device)  # graphs keep reading it
        if self.device == "cuda" and self.attend == self._flash:
            self._capture()

    def _weight(self, rows: int, columns: int) -> Any:
        return self.torch.empty(rows, columns, device=self.device, dtype=self.dtype).normal_(0, 0.02)

    def launch(self, step: Step) -> Callable[[], list[int]]:
        """Launch a step on the GPU; the returned function waits for it and returns the tokens of all parts."""
        torch, at = self.torch, self.shape.max_len
        for source, to, tokens in step.copies:
            for cache in (self.keys, self.values):
                cache[:, to * at : to * at + tokens] = cache[:, source * at : source * at + tokens]
        slots = [sequence.slot for sequence, _ in step.parts]
        size = next((size for size in GRAPHS if size >= len(slots)), None)
        if step.decodes_only and size in self.graphs:
            graph, static, made = self.graphs[size]
            filled = np.zeros((2, size), np.int64)
            filled[0] = self.shape.slots
            filled[0, : len(slots)] = slots
            filled[1, : len(slots)] = [sequence.computed - 1 for sequence, _ in step.parts]
            static.copy_(torch.from_numpy(filled).pin_memory(), non_blocking=True)
            graph.replay()
            made = made[: len(slots)]
        else:
            made = self._eager(step, slots)
        if self.device == "cpu":
            return made.tolist
        host = torch.empty(len(slots), dtype=torch.int64, pin_memory=True)
        host.copy_(made, non_blocking=True)
        done = torch.cuda.Event()
        done.record()

        def wait() -> list[int]:
            done.synchronize()
            return host.tolist()

        return wait

    def _eager(self, step: Step, slots: list[int]) -> Any:
        torch = self.torch
        counts = [tokens for _, tokens in step.parts]
        starts = [sequence.computed - tokens for sequence, tokens in step.parts]
        ids = np.concatenate([self._ids(sequence, tokens) for sequence, tokens in step.parts])
        positions = np.concatenate([np.arange(start, start + n) for start, n in zip(starts, counts, strict=True)])
        packed = np.concatenate([ids, positions, np.repeat(slots, counts), slots, np.cumsum([0, *counts])])
        on_host = torch.from_numpy(packed.astype(np.int64))
        if self.device == "cuda":
            on_host = on_host.pin_memory()
        total, n = len(ids), len(slots)
        sizes = [total, total, total, n, n + 1]
        ids, positions, owners, slots_, cumulative = on_host.to(self.device, non_blocking=True).split(sizes)
        ids = torch.where(ids < 0, self.last[owners], ids)
        return self._forward(ids, positions, owners, slots_, cumulative.int(), max(counts))

    def _ids(self, sequence: Sequence, tokens: int) -> np.ndarray:
        """The token ids; -1 is the last generated token, which only the GPU has."""
        start = sequence.computed - tokens
        if start >= len(sequence.prompt):
            return np.full(1, -1, np.int64)
        return sequence.prompt[start : sequence.computed].astype(np.int64)

    def _forward(self, ids: Any, positions: Any, owners: Any, slots: Any, cumulative: Any, most: int) -> Any:
        torch, s = self.torch, self.shape
        functional = torch.nn.functional
        rows = owners * s.max_len + positions
        lasts = cumulative[1:].long() - 1
        begins = functional.pad(slots * s.max_len, (0, 1)).int()
        used = (positions[lasts] + 1).int()
        cos, sin = self.cos[positions], self.sin[positions]
        hidden = self.embedding[ids]
        for layer, (qkv, out, up, down) in enumerate(self.layers):
            mixed = functional.linear(functional.rms_norm(hidden, (s.width,)), qkv)
            q, k, v = mixed.view(len(ids), -1, s.head).split([s.heads, s.kv_heads, s.kv_heads], dim=1)
            self.keys[layer].index_copy_(0, rows, _turned(torch, k, cos, sin))
            self.values[layer].index_copy_(0, rows, v)
            attended = self.attend(_turned(torch, q, cos, sin), layer, cumulative, begins, used, most)
            hidden = hidden + functional.linear(attended.reshape(len(ids), -1), out)
            gate, value = functional.linear(functional.rms_norm(hidden, (s.width,)), up).chunk(2, dim=-1)
            hidden = hidden + functional.linear(functional.silu(gate) * value, down)
        made = functional.linear(functional.rms_norm(hidden[lasts], (s.width,)), self.head).argmax(dim=-1)
        self.last[slots] = made
        return made

    # -- attention: flash over slots, flash over gathered rows where that is not right, a loop on a CPU

    def _attention(self) -> Callable[..., Any]:
        if self.device == "cpu":
            return self._plain
        torch, s = self.torch, self.shape
        self.keys[0, : 4 * s.max_len].normal_()
        self.values[0, : 4 * s.max_len].normal_()
        for choice in (self._flash, self._gathered):
            try:
                for counts in ((1, 1, 1), (40, 1, 7)):
                    q = torch.randn(sum(counts), s.heads, s.head, device="cuda", dtype=self.dtype)
                    cumulative = torch.tensor(np.cumsum([0, *counts]), device="cuda", dtype=torch.int32)
                    begins = torch.tensor([2 * s.max_len, 0, s.max_len, 0], device="cuda", dtype=torch.int32)
                    used = torch.tensor([300, 17, 1000], device="cuda", dtype=torch.int32)
                    asked = (q, 0, cumulative, begins, used, max(counts))
                    torch.testing.assert_close(choice(*asked), self._plain(*asked), atol=2e-2, rtol=2e-2)
            except (AssertionError, RuntimeError, TypeError) as error:
                print(f"attention {choice.__name__} is not used: {str(error)[:300]}", file=sys.stderr, flush=True)
                continue
            print(f"attention {choice.__name__}", file=sys.stderr, flush=True)
            return choice
        sys.exit("error: no attention of this torch is right")

    def _flash(self, q: Any, layer: int, cumulative: Any, begins: Any, used: Any, most: int) -> Any:
        return self.torch.ops.aten._flash_attention_forward(
            *(q, self.keys[layer], self.values[layer], cumulative, begins, most, self.shape.max_len),
            *(0.0, True, False),
            seqused_k=used,
        )[0]

    def _gathered(self, q: Any, layer: int, cumulative: Any, begins: Any, used: Any, most: int) -> Any:
        torch = self.torch
        ends = used.cumsum(0)
        total = int(ends[-1])
        shift = (begins[:-1] - ends + used).long()
        rows = torch.repeat_interleave(shift, used, output_size=total) + torch.arange(total, device=q.device)
        keys = torch.nn.functional.pad(ends, (1, 0)).int()
        return torch.ops.aten._flash_attention_forward(
            *(q, self.keys[layer][rows], self.values[layer][rows], cumulative, keys, most, int(used.max())),
            *(0.0, True, False),
        )[0]

    def _plain(self, q: Any, layer: int, cumulative: Any, begins: Any, used: Any, _most: int) -> Any:
        torch, parts = self.torch, []
        ends = cumulative.tolist()
        for number, (begin, length) in enumerate(zip(begins.tolist(), used.tolist(), strict=False)):
            mine = q[ends[number] : ends[number + 1]].transpose(0, 1)
            k, v = (cache[layer, begin : begin + length].transpose(0, 1) for cache in (self.keys, self.values))
            k, v = (one.repeat_interleave(self.shape.heads // self.shape.kv_heads, 0) for one in (k, v))
            count = mine.shape[1]
            sees = torch.ones(count, length, dtype=torch.bool, device=q.device).tril(length - count)
            parts.append(torch.nn.functional.scaled_dot_product_attention(mine, k, v, attn_mask=sees).transpose(0, 1))
        return torch.cat(parts)

    def _capture(self) -> None:
        torch = self.torch
        for size in reversed(GRAPHS):
            static = torch.zeros(2, size, dtype=torch.int64, device="cuda")
            static[0] = self.shape.slots
            cumulative = self.cumulative[: size + 1]

            def step(static: Any = static, cumulative: Any = cumulative) -> Any:
                slots, positions = static
                return self._forward(self.last[slots], positions, slots, slots, cumulative, 1)

            step()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                made = step()
            self.graphs[size] = (graph, static, made)


def _turned(torch: Any, heads: Any, cos: Any, sin: Any) -> Any:
    left, right = heads.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def run_engine(shape: Shape, link: Connection) -> None:
    """Run until the frontend ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    with torch.inference_mode():
        _serve_steps(Llama(shape), Scheduler(shape), link)


def _serve_steps(model: Llama, scheduler: Scheduler, link: Connection) -> None:
    for tokens in (16, 512, 2048):  # the first use of a size selects kernels and allocates memory
        sequence = Sequence(-1, np.ones(min(tokens, model.shape.max_len - 2), np.int32), 1)
        scheduler.waiting.append(sequence)
        while (step := scheduler.plan()) is not None:
            model.launch(step)()
    scheduler._held_len[:] = 0
    decoder, encoder = msgspec.msgpack.Decoder(Asked), msgspec.msgpack.Encoder()
    link.send_bytes(b"ready")
    under_way: tuple[Step, set[Sequence], Callable[[], list[int]]] | None = None
    try:
        while True:
            while link.poll(0 if under_way or scheduler.running or scheduler.waiting else None):
                asked = decoder.decode(link.recv_bytes())
                sequence = Sequence(asked.id, np.frombuffer(asked.prompt, np.int32), asked.output)
                scheduler.waiting.append(sequence)
            step = scheduler.plan()
            finals = {sequence for sequence in step.gives if sequence.made == sequence.output} if step else set()
            launched = None if step is None else (step, finals, model.launch(step))
            if under_way is not None:
                link.send_bytes(encoder.encode(_made(*under_way)))
            under_way = launched
    except (EOFError, BrokenPipeError):
        return


def _made(step: Step, finals: set[Sequence], wait: Callable[[], list[int]]) -> list[Made]:
    tokens, gives = wait(), set(step.gives)
    return [
        Made(sequence.id, token, sequence.cached, sequence in finals)
        for (sequence, _), token in zip(step.parts, tokens, strict=True)
        if sequence in gives
    ]


# -- the frontend ----------------------------------------------------------------------------------------------------


class Frontend:
    """Reads requests, hands them to the engine, and sends each token as an event when it comes."""

    def __init__(self, reactor: Any, link: Connection, shape: Shape, name: str, port: int) -> None:
        from inferometer.simulator.settings import SimulatorSettings
        from inferometer.wire.server import HttpServer

        self.link, self.shape, self.name = link, shape, name
        self.settings = SimulatorSettings(model=name, max_model_len=shape.max_len)
        self._encoder, self._decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(list[Made])
        self._streams: dict[int, tuple[Any, Any, list[int]]] = {}
        self._number = 0
        self.http = HttpServer(reactor, self.handle, "127.0.0.1", port)
        reactor.watch(link.fileno(), self._tokens)

    def handle(self, request: Any, reply: Any) -> None:
        from inferometer.simulator.requests import RefusalError

        if request.path == "/v1/models":
            card = {"id": self.name, "object": "model", "owned_by": "torch", "max_model_len": self.shape.max_len}
            reply.respond(200, json.dumps({"object": "list", "data": [card]}).encode())
        elif request.path == "/health":
            reply.respond(200, b"")
        elif request.method == "POST" and request.path in ("/v1/completions", "/v1/chat/completions"):
            try:
                self._generate(request, reply)
            except RefusalError as refusal:
                reply.respond(refusal.status, json.dumps({"error": {"message": refusal.message}}).encode())
        else:
            reply.respond(404, b'{"detail": "Not Found"}')

    def _generate(self, request: Any, reply: Any) -> None:
        from inferometer.simulator.dialects import Answering
        from inferometer.simulator.requests import bad, read_question

        question = read_question(request.body, "chat" in request.path, self.settings)
        if not question.stream or len(question.generations) != 1:
            raise bad("only single streamed answers are made here")
        wanted = question.generations[0]
        prompt = [zlib.crc32(str(token).encode()) % self.shape.vocabulary for token in wanted.tokens]
        self._number += 1
        answering = Answering(
            chat=question.chat,
            id=f"cmpl-{self._number}",
            model=self.name,
            prompt_tokens=len(prompt),
            include_usage=question.include_usage,
            continuous_usage=question.continuous_usage,
            usage_details=True,
        )
        output = wanted.max_tokens or self.shape.max_len - len(prompt)
        self._streams[self._number] = (reply, answering, [0])
        reply.start(200)
        for event in answering.opening(0):
            reply.write(event)
        self.link.send_bytes(self._encoder.encode(Asked(self._number, np.array(prompt, np.int32).tobytes(), output)))

    def _tokens(self, _events: int) -> None:
        while self.link.poll():
            for made in self._decoder.decode(self.link.recv_bytes()):
                self._send(made)

    def _send(self, made: Made) -> None:
        reply, answering, count = self._streams[made.id]
        count[0] += 1
        reply.write(answering.token_event(0, f" t{made.token}", count[0], "length" if made.is_last else None))
        if made.is_last:
            for event in answering.ending(count[0], made.cached):
                reply.write(event)
            reply.end()
            del self._streams[made.id]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--shape", choices=SHAPES, default="8b")
    options.add_argument("--port", type=int, default=0)
    chosen = options.parse_args()
    from inferometer.wire.reactor import Reactor

    shape = SHAPES[chosen.shape]
    ours, theirs = mp.get_context("spawn").Pipe()
    engine = mp.get_context("spawn").Process(target=run_engine, args=(shape, theirs), daemon=True)
    began = time.monotonic()
    engine.start()
    theirs.close()
    assert ours.recv_bytes() == b"ready"
    reactor = Reactor()
    frontend = Frontend(reactor, ours, shape, f"torch-{chosen.shape}", chosen.port)
    print(f"KV cache size: {shape.slots * shape.max_len:,} tokens", file=sys.stderr)
    print(
        f"max_num_batched_tokens={shape.budget} max_num_seqs={shape.slots} max_seq_len={shape.max_len}", file=sys.stderr
    )
    print(f"max_cudagraph_capture_size={GRAPHS[-1]}", file=sys.stderr, flush=True)
    ready = {"url": f"http://127.0.0.1:{frontend.http.port}", "pid": os.getpid(), "start_s": time.monotonic() - began}
    print(json.dumps(ready), flush=True)
    for number in (signal.SIGTERM, signal.SIGINT):
        reactor.on_signal(number, reactor.stop)
    reactor.run()
    engine.kill()


if __name__ == "__main__":
    main()
