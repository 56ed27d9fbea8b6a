"""Hugging Face transformers in this process, on CPU or CUDA: `generate` on whole batches."""

import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from inferometer.documents.document import JsonValue
from inferometer.errors import PlanError
from inferometer.target.offline import (
    EngineFacts,
    EngineSettings,
    Messages,
    Prompt,
    PromptTokens,
    TokenIds,
    named_model,
    needed,
)

EXTRA = "transformers"
OWN_ARGS = ("device", "batch_size")  # taken from `args`; the others go to `from_pretrained`


class TransformersEngine:
    """A batch is padded on the left to its longest prompt and runs until its longest answer is complete. `args` may
    have `device` (default: CUDA if available) and `batch_size` (default: all at once); the others are the model's."""

    def __init__(self, settings: EngineSettings) -> None:
        name = named_model("transformers", settings.model)
        self._torch = needed("torch", EXTRA, "the engine transformers")
        self._package = needed("transformers", EXTRA, "the engine transformers")
        self._settings, self._name = settings, name
        self._device = str(settings.args.get("device") or ("cuda" if self._torch.cuda.is_available() else "cpu"))
        self._batch_size = _batch_size(settings.args)
        self._torch.manual_seed(settings.seed)
        own = {key: value for key, value in settings.args.items() if key not in OWN_ARGS}
        model = self._package.AutoModelForCausalLM.from_pretrained(name, **{"dtype": "auto", **own})
        self._model = model.to(self._device).eval()
        self._tokenizer: Any = None
        self._traces = count(1)
        self.facts = self._facts()

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[PromptTokens]:
        size = self._batch_size or len(prompts)
        try:
            return [
                answer
                for start in range(0, len(prompts), size)
                for answer in self._batch(prompts[start : start + size], output_tokens[start : start + size])
            ]
        except Exception:
            self._free()  # free the memory of a batch that did not fit, for the next one
            raise

    def _batch(self, prompts: Sequence[Prompt], lengths: Sequence[int]) -> list[PromptTokens]:
        rows = [self._encoded(prompt) if isinstance(prompt, str) else _ids(prompt) for prompt in prompts]
        longest, output_tokens, n = max(map(len, rows)), max(lengths), self._settings.n
        ids = self._tensor([[0] * (longest - len(row)) + row for row in rows])
        mask = self._tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])
        with self._torch.inference_mode():
            made = self._model.generate(ids, attention_mask=mask, generation_config=self._config(output_tokens))
        new = int(made.shape[1]) - longest
        return [PromptTokens(len(row), n * min(new, length)) for row, length in zip(rows, lengths, strict=True)]

    def _config(self, length: int) -> Any:
        """No end-of-text token; sampled at temperature 1 from all tokens, or searched with `n` beams."""
        n = self._settings.n
        drawn = {"num_beams": n} if self._settings.beam_search else {"do_sample": True, "top_k": 0, "top_p": 1.0}
        return self._package.GenerationConfig(
            min_new_tokens=length,
            max_new_tokens=length,
            num_return_sequences=n,
            eos_token_id=None,
            pad_token_id=0,
            **({} if self._settings.beam_search else {"temperature": 1.0}),
            **drawn,
        )

    def _tensor(self, rows: list[list[int]]) -> Any:
        return self._torch.tensor(rows, dtype=self._torch.long, device=self._device)

    def _encoded(self, text: str) -> list[int]:
        if self._tokenizer is None:
            self._tokenizer = self._package.AutoTokenizer.from_pretrained(self._name)
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    def now(self) -> int:
        """Synchronizes first: a launched kernel is not yet done."""
        if self._device.startswith("cuda"):
            self._torch.cuda.synchronize()
        return time.perf_counter_ns()

    @contextmanager
    def profiled(self, folder: Path) -> Iterator[None]:
        folder.mkdir(parents=True, exist_ok=True)
        profiler = self._torch.profiler
        with profiler.profile(activities=list(profiler.supported_activities())) as trace:
            yield
            self.now()
        trace.export_chrome_trace(str(folder / f"transformers-{next(self._traces)}.json.gz"))

    def close(self) -> None:
        self._model = None
        self._free()

    def _free(self) -> None:
        gc.collect()
        if self._device.startswith("cuda"):
            self._torch.cuda.empty_cache()

    def _facts(self) -> EngineFacts:
        config = self._model.config.get_text_config()
        is_cuda = self._device.startswith("cuda")
        return EngineFacts(
            engine="transformers",
            version=f"{self._package.__version__} with torch {self._torch.__version__}",
            model=self._name,
            device=self._torch.cuda.get_device_name(self._device) if is_cuda else self._device,
            dtype=str(self._model.dtype).removeprefix("torch."),
            max_model_len=getattr(config, "max_position_embeddings", None),
            vocabulary=getattr(config, "vocab_size", None),
        )


def _batch_size(args: dict[str, JsonValue]) -> int | None:
    size = args.get("batch_size")
    if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
        raise PlanError(f"--args batch_size: must be a whole number of at least 1, got {size}")
    return size


def _ids(prompt: TokenIds | Messages) -> TokenIds:
    """Messages are already refused when the plan is read."""
    return [token for token in prompt if isinstance(token, int)]
