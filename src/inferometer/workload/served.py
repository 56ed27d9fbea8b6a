"""A server's own /tokenize, asked before the load: vLLM's, SGLang's and llama.cpp's."""

import http.client
from typing import Any, Self

import orjson

from inferometer.errors import TargetError
from inferometer.wire.origin import trusted_origin
from inferometer.workload.context import WorkloadContext

ANSWER_S = 30.0
_REMEDY = "name the model's tokenizer (a folder or its name on the hub) in workload.tokenizer, or send token_ids"


class ServerTokenizer:
    """Counts tokens at the target, on one connection."""

    def __init__(self, context: WorkloadContext) -> None:
        if context.url is None:
            raise TargetError("workload.tokenizer: server needs a server to ask", _REMEDY)
        self._origin = trusted_origin(context.url, context.tls.trust, context.proxy)
        self._context = context
        self._connection: http.client.HTTPConnection | None = None

    def count(self, text: str) -> int:
        """Tokens of the text as a prompt of the target's API, with all that the server puts around it."""
        return self.count_messages([{"role": "user", "content": text}]) if self._chats else self._count(prompt=text)

    def count_messages(self, messages: list[dict[str, Any]]) -> int:
        return self._count(messages=messages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _chats(self) -> bool:
        return self._context.api == "chat"

    def _count(self, **what: Any) -> int:
        fields = {"model": self._context.model, **what}
        reply = self._post(fields)
        if "prompt" in what and "count" not in reply and not reply.get("tokens"):
            reply = self._post({"content": what["prompt"], "add_special": True})  # llama.cpp
        tokens = reply.get("count", reply.get("tokens"))
        if isinstance(tokens, list):
            return len(tokens)
        if isinstance(tokens, int):
            return tokens
        raise self._refused("its answer has no count")

    def _post(self, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            connection = self._open()
            path = self._origin.path.removesuffix("/v1") + "/tokenize"
            headers = {"Content-Type": "application/json", **self._context.headers, **self._origin.proxy_headers}
            connection.request("POST", self._origin.request_target(path), orjson.dumps(fields), headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._refused(str(error) or type(error).__name__) from None
        if response.status != 200:
            raise self._refused(f"it answered {response.status}")
        try:
            reply = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self._refused("its answer is not JSON") from None
        return reply if isinstance(reply, dict) else {}

    def _open(self) -> http.client.HTTPConnection:
        """Kept open between counts; one that the server has closed is opened anew by http.client."""
        if self._connection is None:
            self._connection = self._origin.connection(ANSWER_S)
        return self._connection

    def _refused(self, why: str) -> TargetError:
        return TargetError(f"{self._context.url}: /tokenize cannot be used, {why}", _REMEDY)
