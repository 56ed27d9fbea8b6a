"""vLLM in this process, through its `LLM` class: written against 0.24 to 0.32."""

import gc
import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import active_children
from multiprocessing.connection import wait
from pathlib import Path
from threading import Thread
from typing import Any

from inferometer.errors import InferometerError
from inferometer.target.offline import EngineFacts, EngineSettings, Prompt, PromptTokens, named_model

ENGINE_DIED = "a process of vLLM has died"
_AS_VLLM_BENCH = {
    "enable_prefix_caching": False,  # a cache that has the prompt would hide what a prompt costs
    "disable_log_stats": False,  # its engine counts as a serving one does; `LLM` alone would not
}


class VllmEngine:
    """`args` are vLLM's own: `max_model_len`, `tensor_parallel_size`, `dtype`, `enforce_eager`, ..."""

    def __init__(self, settings: EngineSettings) -> None:
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")  # as in all of vLLM's own commands
        self._vllm = _installed()
        self._settings = settings
        chosen = {**_AS_VLLM_BENCH, "seed": settings.seed, **_profiler(settings.profile), **settings.args}
        self._detokenize = settings.detokenize and not chosen.get("skip_tokenizer_init")
        before = set(active_children())
        self._llm: Any = self._vllm.LLM(model=named_model("vllm", settings.model), **chosen)
        self._children = [child for child in active_children() if child not in before]
        _wake_when_dead(self._llm, self._children)
        self.facts = self._facts()

    def generate(self, prompts: Sequence[Prompt], output_tokens: Sequence[int]) -> list[PromptTokens]:
        if not all(child.is_alive() for child in self._children):  # else a request may wait for ever
            raise RuntimeError(ENGINE_DIED)
        sampling = [self._sampling(length) for length in output_tokens]
        adapted = {"lora_request": self._adapters(len(prompts))} if self._settings.adapter else {}
        if prompts and all(_is_chat(prompt) for prompt in prompts):
            outputs = self._llm.chat(list(prompts), sampling, use_tqdm=False, **adapted)
            return [_counted(output, [len(one.token_ids) for one in output.outputs]) for output in outputs]
        inputs = [{"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt} for prompt in prompts]
        if self._settings.beam_search:
            return self._beams(inputs, output_tokens)
        outputs = self._llm.generate(inputs, sampling, use_tqdm=False, **adapted)
        return [_counted(output, [len(one.token_ids) for one in output.outputs]) for output in outputs]

    def _adapters(self, count: int) -> list[Any]:
        """One for each prompt: as `vllm bench throughput` does, the same adapter under as many names as `max_loras`."""
        make = import_module("vllm.lora.request").LoRARequest
        most = int(self._settings.args.get("max_loras") or 1)
        draw = random.Random(self._settings.seed)
        names = [draw.randint(1, most) for _ in range(count)]
        return [make(str(name), name, self._settings.adapter) for name in names]

    def _sampling(self, length: int) -> Any:
        return self._vllm.SamplingParams(
            n=self._settings.n,
            temperature=1.0,
            top_p=1.0,
            ignore_eos=True,
            max_tokens=length,
            detokenize=self._detokenize,
        )

    def _beams(self, inputs: list[dict[str, Any]], output_tokens: Sequence[int]) -> list[PromptTokens]:
        """vLLM takes one length for a whole search, so prompts of the same length are searched together."""
        params = import_module("vllm.sampling_params").BeamSearchParams
        answers: dict[int, PromptTokens] = {}
        for length in dict.fromkeys(output_tokens):
            numbers = [at for at, tokens in enumerate(output_tokens) if tokens == length]
            results = self._llm.beam_search(
                [inputs[at] for at in numbers],
                params(beam_width=self._settings.n, max_tokens=length, ignore_eos=True),
            )
            for at, result in zip(numbers, results, strict=True):
                given = len(inputs[at].get("prompt_token_ids", ()))
                answers[at] = PromptTokens(given, sum(len(beam.tokens) - given for beam in result.sequences))
        return [answers[at] for at in range(len(inputs))]

    def now(self) -> int:
        """`generate` returns when the answers have arrived, so there is no device to wait for."""
        return time.perf_counter_ns()

    @contextmanager
    def profiled(self, folder: Path) -> Iterator[None]:
        self._llm.start_profile()
        try:
            yield
        finally:
            self._llm.stop_profile()

    def close(self) -> None:
        """End the engine's processes and release its memory, so that another engine can be started."""
        llm, self._llm = self._llm, None
        with suppress(Exception):  # an engine that died has nothing to shut down
            llm.llm_engine.engine_core.shutdown()
        del llm
        gc.collect()

    def _facts(self) -> EngineFacts:
        config = self._llm.llm_engine.model_config
        return EngineFacts(
            engine="vllm",
            version=getattr(self._vllm, "__version__", None),
            model=str(self._settings.model),
            device=_device(self._llm),
            dtype=str(config.dtype).removeprefix("torch."),
            max_model_len=int(config.max_model_len),
            vocabulary=int(config.get_vocab_size()),
        )


def _installed() -> Any:
    """vLLM, if installed. It depends on the device, so users install the build for theirs."""
    try:
        return import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        hint = "pip install vllm, into the environment that inferometer runs in; see https://docs.vllm.ai for devices"
        raise InferometerError("--engine vllm: vLLM is not installed", hint) from None


def _wake_when_dead(llm: Any, children: list[Any]) -> None:
    """If an engine process is killed (by the system, out of memory), vLLM 0.32 waits for its answer for ever: put a
    notice of its end into the queue where the answer is awaited. The thread sleeps until then."""
    answers = getattr(llm.llm_engine.engine_core, "outputs_queue", None)
    if answers is None or not children:
        return

    def wake() -> None:
        wait([child.sentinel for child in children])
        answers.put_nowait(RuntimeError(ENGINE_DIED))

    Thread(target=wake, name="vllm-died", daemon=True).start()


def _profiler(folder: Path | None) -> dict[str, Any]:
    """Enables profiling in vLLM; older versions use the environment variable VLLM_TORCH_PROFILER_DIR."""
    if folder is None:
        return {}
    place = str(folder.resolve())
    if hasattr(import_module("vllm.config"), "ProfilerConfig"):
        return {"profiler_config": {"profiler": "torch", "torch_profiler_dir": place}}
    os.environ["VLLM_TORCH_PROFILER_DIR"] = place
    return {}


def _device(llm: Any) -> str | None:
    """`NVIDIA H200`, or the kind of device."""
    kind = getattr(getattr(llm.llm_engine.vllm_config, "device_config", None), "device_type", None)
    with suppress(Exception):
        return str(import_module("vllm.platforms").current_platform.get_device_name())
    return None if kind is None else str(kind)


def _is_chat(prompt: Prompt) -> bool:
    return not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], dict)


def _counted(output: Any, made: list[int]) -> PromptTokens:
    return PromptTokens(len(output.prompt_token_ids or ()), sum(made))
