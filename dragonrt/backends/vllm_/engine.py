"""Loads a model into vLLM's engine, in this process; the workers of several GPUs are others."""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragonrt.backends.backend import ModelInfo
from dragonrt.backends.kv_pool import usual_limit
from dragonrt.backends.threads import usual_threads
from dragonrt.backends.vllm_.options import read_options
from dragonrt.errors import ModelError
from dragonrt.side import Precision

if TYPE_CHECKING:
    from dragonrt.backends.vllm_.backend import VllmBackend

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a step of the engine is a call of the backend
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # RowKeeper has the interface of the first runner
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the other threads of this process keep their cores
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",  # nothing is sent to vLLM's makers
}
KEY = "row"
"""The argument of a request whose row is kept: its key."""
_ROWS = "dragonrt.backends.vllm_.rows"
_CPU = {
    "enforce_eager": True,  # compiling takes minutes and gains little
    "block_size": 32,  # the least: what a request computes again is a part of a block
}
_PROMPT_PIECE = 256
_SAMPLE = 2**21


def load_model(
    source: str,
    dtype: Precision = "auto",
    threads: int | None = None,
    options: Sequence[str] = (),
) -> "VllmBackend":
    """Load a directory or hub id with engine arguments `name=value`; return its backend.

    Raises ModelError if there is no such model, or vLLM refuses it or an argument.
    """
    os.environ |= _ENVIRONMENT | {
        "OMP_NUM_THREADS": str(usual_threads() if threads is None else threads)
    }
    from transformers import AutoTokenizer
    from vllm import EngineArgs, LLMEngine
    from vllm import __version__ as version
    from vllm.platforms import current_platform

    from dragonrt.backends.transformers_.tokenizer import TransformersTokenizer
    from dragonrt.backends.vllm_.backend import VllmBackend
    from dragonrt.backends.vllm_.self_test import exact_rows

    given = read_options(options, {each.name for each in fields(EngineArgs)})
    usual = _CPU | {"kv_cache_memory_bytes": usual_limit(None)} if current_platform.is_cpu() else {}
    try:
        llm = LLMEngine.from_engine_args(
            EngineArgs(
                model=source,
                dtype=dtype,
                skip_tokenizer_init=True,
                enable_prefix_caching=True,
                logits_processors=[f"{_ROWS}:RowKeeper"],
                worker_extension_cls=f"{_ROWS}.WorkerExtension",
                **{"disable_log_stats": True, "use_tqdm_on_load": False, **usual, **given},
            )
        )
        tokenizer = TransformersTokenizer(AutoTokenizer.from_pretrained(source))
    except Exception as error:  # of any kind: what an engine raises is no interface
        raise ModelError(f"vLLM cannot load {source}: {_line(error)}") from error
    engine = VllmEngine(llm)
    model, cache = llm.vllm_config.model_config, llm.vllm_config.cache_config
    parameters, fingerprint = _weights(_directory(source, model.revision))
    exact = exact_rows(engine, model.get_vocab_size())
    ends = model.try_get_generation_config().get("eos_token_id", model.hf_config.eos_token_id)
    info = ModelInfo(
        parameters=parameters,
        fingerprint=fingerprint,
        tokenizer_fingerprint=tokenizer.fingerprint,
        stop_tokens=tuple(ends) if isinstance(ends, list) else () if ends is None else (ends,),
        vocabulary=model.get_vocab_size(),
        context_length=model.max_model_len - 1,  # the predicted token counts, too
        device=current_platform.device_type,
        device_memory=None,
        dtype=str(model.dtype).removeprefix("torch."),
        version="vllm 1",
        engine=f"vLLM {version}, {current_platform.get_device_name() or 'CPU'}",
        exact_blocks=exact > 0,
        exact_tokens=exact or None,
        prompt_piece=_PROMPT_PIECE,
        exact_batches=exact > 0,
        kv_memory=engine.kv_bytes,
    )
    return VllmBackend(engine, tokenizer, info, engine.block_bytes // cache.block_size)


class VllmEngine:
    """Implements backend.Engine by vLLM's core: what a request is, is vLLM's own message to it."""

    def __init__(self, llm: Any) -> None:
        from vllm import SamplingParams
        from vllm.v1.engine import EngineCoreRequest

        self._params, self._request = SamplingParams, EngineCoreRequest
        self._core, self._workers = llm.engine_core, llm.collective_rpc
        self._awaited: set[str] = set()
        self._workers("keep_hidden")
        specs = self._workers("get_kv_cache_spec")
        self.block_bytes = sum(each.page_size_bytes for of in specs for each in of.values())
        """Bytes of a block of KV on all workers."""
        cache, scheduler = llm.vllm_config.cache_config, llm.vllm_config.scheduler_config
        self.kv_bytes = cache.num_gpu_blocks * self.block_bytes
        tokens = cache.num_gpu_blocks * cache.block_size
        self.most_open = scheduler.max_num_seqs // 2, tokens // 2  # others need the rest

    @property
    def busy(self) -> bool:
        return bool(self._awaited)

    def add(self, key: int, tokens: Sequence[int], stays: bool) -> None:
        params = self._params(temperature=0, max_tokens=1, detokenize=False, extra_args={KEY: key})
        request = self._request(
            request_id=str(key),
            prompt_token_ids=list(tokens),
            mm_features=None,
            sampling_params=params,
            pooling_params=None,
            arrival_time=0.0,
            lora_request=None,
            cache_salt=None,
            data_parallel_rank=None,
            resumable=stays,
        )
        self._core.add_request(request)
        self._awaited.add(request.request_id)

    def step(self) -> None:
        self._awaited -= {each.request_id for each in self._core.get_output().outputs}

    def abort(self, keys: Sequence[int]) -> None:
        names = [str(key) for key in keys]
        self._core.abort_requests(names)
        self._awaited.difference_update(names)

    def take(self, keys: Sequence[int]) -> list[Any]:
        found = self._workers("take_rows", args=(list(keys),))
        return next(rows for rows in found if rows is not None)


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _directory(source: str, revision: str | None) -> Path:
    if (path := Path(source).expanduser()).is_dir():
        return path
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source, revision=revision, local_files_only=True))


def _weights(directory: Path) -> tuple[int, str]:
    """Return the number of weights, and a SHA-256 of the configuration and of what files hold.

    Of each file of weights: its header, and the last of them. Reading all takes minutes.
    """
    parameters, digest = 0, hashlib.sha256((directory / "config.json").read_bytes())
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
            file.seek(max(file.tell(), path.stat().st_size - _SAMPLE))
            digest.update(header + file.read())
        tensors = json.loads(header)
        parameters += sum(math.prod(each.get("shape", [0])) for each in tensors.values())
    return parameters, digest.hexdigest()
