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
_ROWS = "dragonrt.backends.vllm_.rows"
_CPU = {
    "enforce_eager": True,  # compiling takes minutes and gains little
    "block_size": 32,  # the least: what a request computes again is a part of a block
}
_PROMPT_PIECE = 256
_HEADER, _SAMPLE = 8, 2**20


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
    per_token = engine.kv_bytes // cache.block_size
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
        kv_memory=cache.num_gpu_blocks * engine.kv_bytes,
    )
    return VllmBackend(engine, tokenizer, info, per_token)


class VllmEngine:
    """Implements backend.Engine by vLLM's engine."""

    def __init__(self, llm: Any) -> None:
        from vllm import SamplingParams

        self._llm, self._params = llm, SamplingParams
        llm.collective_rpc("keep_hidden")
        specs = llm.collective_rpc("get_kv_cache_spec")
        self.kv_bytes = sum(each.page_size_bytes for of in specs for each in of.values())
        """Bytes of a block on all workers."""

    @property
    def busy(self) -> bool:
        return bool(self._llm.has_unfinished_requests())

    def add(self, key: int, tokens: Sequence[int]) -> None:
        params = self._params(
            temperature=0, max_tokens=1, detokenize=False, extra_args={"row": key}
        )
        self._llm.add_request(str(key), {"prompt_token_ids": tokens}, params)

    def step(self) -> None:
        self._llm.step()

    def abort(self, keys: Sequence[int]) -> None:
        self._llm.abort_request([str(key) for key in keys])

    def take(self, keys: Sequence[int]) -> list[Any]:
        found = self._llm.collective_rpc("take_rows", args=(list(keys),))
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

    Of each file of weights: its header, its size and a sample. Reading all takes minutes.
    """
    digest, parameters = hashlib.sha256(), 0
    digest.update((directory / "config.json").read_bytes())
    for path in sorted(directory.glob("*.safetensors")):
        with path.open("rb") as file:
            header = file.read(int.from_bytes(file.read(_HEADER), "little"))
            digest.update(f"{path.name} {path.stat().st_size}".encode() + header)
            digest.update(file.read(_SAMPLE))
            file.seek(max(0, path.stat().st_size - _SAMPLE))
            digest.update(file.read(_SAMPLE))
        for name, tensor in json.loads(header).items():
            if name != "__metadata__":
                parameters += math.prod(tensor["shape"])
    return parameters, digest.hexdigest()
