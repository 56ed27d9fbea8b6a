"""Every answer has a time limit. What takes longer is told so at once; its thread cannot be stopped, so only a few are
at work at the same time, and nobody waits for one when the server ends."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from inferometer.record.sanitize import json_bytes
from inferometer.show.dashboard.access import App, Receive, Scope, Send

LIMIT_S = 20.0
AT_WORK = 8  # answers being made at the same time; others wait for their turn, within their own limit


@dataclass(frozen=True)
class TimeLimit:
    app: App
    limit_s: float = LIMIT_S
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_WORK))
    _late: set[asyncio.Task[None]] = field(default_factory=set)  # kept, or the loop would forget them

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/api"):
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        task = asyncio.ensure_future(self._take_turn(scope, receive, answer))
        done, _ = await asyncio.wait({task}, timeout=self.limit_s)
        if done:
            task.result()
            return
        self._late.add(task)
        task.add_done_callback(self._forget)
        await answer.give_up(self.limit_s)

    async def _take_turn(self, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        async with self._turns:
            if not answer.is_over:
                await self.app(scope, receive, answer.send)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # whatever it was, its reader was answered long ago


class _Answer:
    """Passes messages on until it was given up; then what still comes is dropped."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self.is_over = False

    async def send(self, message: Any) -> None:
        if self.is_over:
            return
        self._begun = True
        await self._send(message)

    async def give_up(self, limit_s: float) -> None:
        self.is_over = True
        if self._begun:  # the rest will not come: the connection is closed
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        hint = "ask for less: fewer runs, or a narrower filter"
        body = json_bytes({"error": f"the answer took longer than {limit_s:g} s", "hint": hint})
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store"), (b"retry-after", b"30")]
        await self._send({"type": "http.response.start", "status": 503, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})
