"""Tokenizers by the name in a plan: a folder, a file, a name on the Hugging Face hub, or the server's /tokenize."""

import base64
import binascii
import http.client
import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

import orjson

from inferometer.documents.files import check_plain
from inferometer.errors import MissingExtra, PlanError, TargetError
from inferometer.wire.origin import TooLarge, body_within, trusted_origin, within
from inferometer.workload.session import WorkloadContext

# -- tokenizers ------------------------------------------------------------------------------------------------------

EXTRA = "tokenizers"
# The pattern that splits text before the merges, if a file of ranks has none: that of cl100k, Llama 3 and Qwen,
# except for Qwen's single digits (https://github.com/QwenLM/Qwen/blob/main/tokenization_note.md).
CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN = CL100K.replace(r"\p{N}{1,3}", r"\p{N}")
HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


class Tokenizer(Protocol):
    """Converts text to token ids and back. `added` is the number of tokens that a server adds, such as a first
    token."""

    name: str
    size: int
    added: int

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: list[int]) -> str: ...


@lru_cache(8)
def tokenizer_named(name: str) -> Tokenizer:
    """The tokenizer in a folder or a file, or that of a model on the hub; a `PlanError` names what is missing."""
    try:
        path = Path(name).expanduser()
        is_file, is_folder = path.is_file(), path.is_dir()
    except (OSError, RuntimeError) as error:  # a name that is too long, an unknown home folder
        raise PlanError(f"tokenizer: {name[:80]} cannot be read: {_line(error)}", _REMEDY) from None
    if is_file:
        return _from_file(path)
    if is_folder:
        return _from_folder(path)
    if name.startswith((".", "/", "~")) or name.count("/") > 1 or not HUB_NAME.fullmatch(name):
        raise PlanError(f"tokenizer: there is no file or folder {name}", _REMEDY)
    return _from_hub(name)


def count_tokens(tokenizer: Tokenizer, text: str) -> int:
    """The number of tokens that a server counts for the text as a prompt."""
    return len(tokenizer.encode(text)) + tokenizer.added


# -- where the file is ---------------------------------------------------------------------------------------

FILES = ("tokenizer.json", "tekken.json", "*.tiktoken", "tokenizer.model", "tokenizer.model.v*", "*/tokenizer.model")
_HUB_FILES = ("tokenizer.json", "tekken.json", "tokenizer.model", "qwen.tiktoken")
_REMEDY = (
    f"name a folder with one of {', '.join(FILES[:4])}, a model on the hub, or `server` for the server's tokenizer"
)


def _from_folder(folder: Path) -> Tokenizer:
    file = next((path for pattern in FILES for path in sorted(folder.glob(pattern))), None)
    if file is None:
        raise PlanError(f"tokenizer: {folder} has none of {', '.join(FILES[:4])}", _REMEDY)
    return _from_file(file)


def _from_file(path: Path) -> Tokenizer:
    """Read a file by its content: Llama 3's tokenizer.model is a file of ranks, Llama 2's is sentencepiece."""
    try:
        check_plain(path)
        with path.open("rb") as file:
            start = file.read(256)
        if path.name.startswith("tekken"):
            return _read_tekken(path)
        if start.lstrip().startswith(b"{"):
            return _read_json(path)
        return _read_ranks(path) if _are_ranks(start) else _read_sentencepiece(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlanError(f"tokenizer: {path} cannot be read: {_line(error)}", _REMEDY) from None


def _from_hub(name: str) -> Tokenizer:
    """The file from the local cache of the hub or from the hub itself."""
    hub = _package("huggingface_hub", f"the tokenizer of {name}")
    try:
        kept = [hub.try_to_load_from_cache(name, file) for file in _HUB_FILES]
    except ValueError as error:  # not a valid model name on the hub
        raise PlanError(f"tokenizer: {_line(error)}", _REMEDY) from None
    if cached := next((path for path in kept if isinstance(path, str)), None):
        return _from_file(Path(cached))
    return _from_file(_downloaded(name, hub))


def _downloaded(name: str, hub: Any) -> Path:
    """The first of these files that exists on the hub."""
    if not _is_reachable(hub.constants.ENDPOINT):
        raise PlanError(
            f"tokenizer: {name} is not a folder and not in the hub's cache, and there is no network", _REMEDY
        )
    for file in _HUB_FILES:
        try:
            return Path(hub.hf_hub_download(name, file))
        except hub.errors.LocalEntryNotFoundError as error:
            raise _not_fetched(name, error) from None
        except hub.errors.EntryNotFoundError:
            continue
        except Exception as error:  # the hub has separate exceptions for model, permission and connection errors
            raise _not_fetched(name, error) from None
    raise PlanError(f"tokenizer: {name} has none of {', '.join(_HUB_FILES)} on the hub", _REMEDY)


def _not_fetched(name: str, error: Exception) -> PlanError:
    return PlanError(f"tokenizer: {name} is not in the hub's cache and cannot be downloaded: {_line(error)}", _REMEDY)


def _is_reachable(endpoint: str) -> bool:
    """Whether the hub's host name resolves: without a network the hub's client tries for a minute and a half."""
    if getproxies().get(urlsplit(endpoint).scheme):
        return True  # the proxy resolves it
    try:
        return bool(socket.getaddrinfo(urlsplit(endpoint).hostname, None))
    except OSError:
        return False


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _package(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(what, EXTRA) from None


# -- what is in it -------------------------------------------------------------------------------------------


class _Read:
    """A tokenizer built from the functions of a package."""

    def __init__(
        self, name: str, size: int, added: int, encode: Callable[[str], list[int]], decode: Callable[[list[int]], str]
    ) -> None:
        self.name, self.size, self.added = name, size, added
        self.encode, self.decode = encode, decode


def _read_json(path: Path) -> Tokenizer:
    made = _package("tokenizers", f"the tokenizer {path}").Tokenizer
    try:
        with _panics_of(path):
            tokenizer = made.from_file(str(path))
            size, added = tokenizer.get_vocab_size(), len(tokenizer.encode("").ids)
    except PlanError:
        raise
    except Exception as error:  # the package raises plain Exception
        raise ValueError(_line(error)) from None

    def encode(text: str) -> list[int]:
        try:
            with _panics_of(path):
                ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        except PlanError:
            raise
        except Exception as error:  # a vocabulary without its unknown token
            raise PlanError(f"tokenizer: {path} cannot encode: {_line(error)}", _REMEDY) from None
        return ids

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    return _Read(str(path), size, added, encode, decode)


def _are_ranks(start: bytes) -> bool:
    """Whether a file has lines of a base64 token and its rank."""
    fields = start.split(b"\n", 1)[0].split()
    try:
        return len(fields) == 2 and fields[1].isdigit() and bool(base64.b64decode(fields[0], validate=True))
    except binascii.Error:
        return False


def _read_ranks(path: Path) -> Tokenizer:
    """tiktoken's files have no special tokens; Llama 3's `tokenizer.model` is one, and its server adds one token."""
    rows = (line.split() for line in path.read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in rows}
    pattern = QWEN if "qwen" in path.name.lower() else CL100K
    return _merges(path, pattern, ranks, 0, added=int(path.name.endswith(".model")))


def _read_tekken(path: Path) -> Tokenizer:
    """Mistral's file: special tokens come first, so rank = id - their number; <s> is added."""
    document = orjson.loads(path.read_bytes())
    config = document["config"]
    special = int(config["default_num_special_tokens"])
    kept = document["vocab"][: int(config["default_vocab_size"]) - special]
    ranks = {base64.b64decode(token["token_bytes"]): int(token["rank"]) for token in kept}
    return _merges(path, str(config["pattern"]), ranks, special, added=1)


def _merges(path: Path, pattern: str, ranks: dict[bytes, int], shift: int, added: int) -> Tokenizer:
    made = _package("tiktoken", f"the tokenizer {path}").Encoding
    if lacking := next((byte for byte in range(256) if bytes([byte]) not in ranks), None):
        raise ValueError(f"it has no token for the byte 0x{lacking:02x}")
    with _panics_of(path):
        encoding = made(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})

    def encode(text: str) -> list[int]:
        with _panics_of(path):
            ids: list[int] = encoding.encode_ordinary(text)
        return [token + shift for token in ids] if shift else ids

    def decode(ids: list[int]) -> str:
        return str(encoding.decode([token - shift for token in ids if token >= shift]))

    return _Read(str(path), len(ranks) + shift, added, encode, decode)


@contextmanager
def _panics_of(path: Path) -> Iterator[None]:
    """Convert panics of Rust packages, which are not subclasses of Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise PlanError(f"tokenizer: {path} cannot be used: {_line(error)}", _REMEDY) from None


def _read_sentencepiece(path: Path) -> Tokenizer:
    """Llama 2's and Mistral's older files; servers put <s> before the text."""
    made = _package("sentencepiece", f"the tokenizer {path}").SentencePieceProcessor
    try:
        model = made(model_file=str(path))
    except RuntimeError as error:
        raise ValueError(_line(error)) from None
    return _Read(str(path), model.get_piece_size(), int(model.bos_id() >= 0), model.encode, model.decode)


# -- served ----------------------------------------------------------------------------------------------------------

ANSWER_S = 30.0
LARGEST_ANSWER = 64 << 20  # bytes: the ids of a prompt of some million tokens
MOST_COUNTED = 1 << 31  # tokens of one text
_NO_TOKENIZE = "name the model's tokenizer (a folder or its name on the hub) in workload.tokenizer, or send token_ids"


class ServerTokenizer:
    """Counts tokens at the target over one connection, optionally with a time limit for all counts together."""

    def __init__(self, context: WorkloadContext, all_within_s: float = math.inf) -> None:
        if context.url is None:
            raise TargetError("workload.tokenizer: server needs a running server", _NO_TOKENIZE)
        self._origin = trusted_origin(context.url, context.tls.trust, context.proxy)
        self._context = context
        self._until = time.monotonic() + all_within_s
        self._connection: http.client.HTTPConnection | None = None

    def count(self, text: str) -> int:
        """Tokens of the text as a prompt of the target's API, including tokens that the server adds."""
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
        count = len(tokens) if isinstance(tokens, list) else tokens
        if isinstance(count, bool) or not isinstance(count, int):
            raise self.refused("its answer has no count")
        if not 0 <= count <= MOST_COUNTED:
            raise self.refused(f"it counted {count:,} tokens")
        return count

    def _post(self, fields: dict[str, Any]) -> dict[str, Any]:
        try:
            connection = self._open()
            within(connection, min(time.monotonic() + ANSWER_S, self._until), LARGEST_ANSWER)
            path = self._origin.path.removesuffix("/v1") + "/tokenize"
            headers = {"Content-Type": "application/json", **self._context.headers, **self._origin.proxy_headers}
            connection.request("POST", self._origin.request_target(path), orjson.dumps(fields), headers)
            response = connection.getresponse()
            body = body_within(response)
        except TimeoutError:
            self.close()
            raise self.refused("it did not answer in time") from None
        except TooLarge:
            self.close()
            raise self.refused(f"its answer is larger than {LARGEST_ANSWER >> 20} MiB") from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self.refused(str(error) or type(error).__name__) from None
        if response.status != 200:
            raise self.refused(f"it answered {response.status}")
        try:
            reply = orjson.loads(body)
        except orjson.JSONDecodeError:
            raise self.refused("its answer is not JSON") from None
        return reply if isinstance(reply, dict) else {}

    def _open(self) -> http.client.HTTPConnection:
        """The connection, which stays open between counts; http.client reopens it if the server closed it."""
        if self._connection is None:
            self._connection = self._origin.connection(ANSWER_S)
        return self._connection

    def refused(self, why: str) -> TargetError:
        return TargetError(f"{self._context.url}: /tokenize cannot be used, {why}", _NO_TOKENIZE)
