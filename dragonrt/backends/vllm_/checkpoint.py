"""Load a model from a directory or the hub into a vLLM engine in this process, as a Backend."""

import hashlib
import json
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dragonrt.backends.backend import Backend, ModelInfo
from dragonrt.backends.resources import usual_limit, usual_threads
from dragonrt.errors import ModelError
from dragonrt.side import Precision

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # a step of the engine is a call of the backend
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # WorkerExtension knows the first runner
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # the other threads of this process keep their cores
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",  # nothing is sent to vLLM's makers
}
_CPU = {
    "enforce_eager": True,  # compiling takes minutes and gains little
    "block_size": 32,  # the least: what a request computes again is a part of a block
}
_PROMPT_PIECE, _SAMPLE = 256, 2**21
_SHARED_TOKENS = 128  # 12 cost a tenth of the tokens/s of 16 sessions; 256 delay first tokens


def load_model(
    source: str, dtype: Precision = "auto", threads: int | None = None, options: Sequence[str] = ()
) -> Backend:
    """Load a model from a directory or hub id, with vLLM's engine arguments as `name=value`.

    Sets vLLM's environment variables, and `threads` CPU threads (None: `usual_threads()`). Raises
    ModelError if vLLM refuses the model or an argument.
    """
    os.environ |= _ENVIRONMENT | {
        "OMP_NUM_THREADS": str(usual_threads() if threads is None else threads)
    }
    # Only here: torch reads its number of threads when it is imported.
    from transformers import AutoTokenizer
    from transformers.utils.hub import cached_file
    from vllm import EngineArgs, LLMEngine
    from vllm import __version__ as version
    from vllm.platforms import current_platform

    from dragonrt.backends.transformers_.backend import TransformersTokenizer
    from dragonrt.backends.vllm_.backend import VllmBackend
    from dragonrt.backends.vllm_.engine import Engine, exact_rows, line_of

    given = read_options(options)
    usual = _CPU | {"kv_cache_memory_bytes": usual_limit(None)} if current_platform.is_cpu() else {}
    try:
        llm = LLMEngine.from_engine_args(
            EngineArgs(
                model=source,
                dtype=dtype,
                runner="generate",
                speculative_config=None,
                skip_tokenizer_init=True,
                enable_prefix_caching=True,
                worker_extension_cls="dragonrt.backends.vllm_.rows.WorkerExtension",
                **{"disable_log_stats": True, "use_tqdm_on_load": False, **usual, **given},
            )
        )
        tokenizer = TransformersTokenizer(AutoTokenizer.from_pretrained(source))
    except Exception as error:  # of any kind: what an engine raises is no interface
        raise ModelError(f"vLLM cannot load {source}: {line_of(error)}") from error
    engine, model = Engine(llm), llm.vllm_config.model_config
    configuration = Path(str(cached_file(source, "config.json", revision=model.revision)))
    parameters, fingerprint = _weights(configuration)
    exact = exact_rows(engine, model.get_vocab_size(), model.max_model_len)
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
        version="vllm 2",
        engine=f"vLLM {version}, {current_platform.get_device_name() or 'CPU'}",
        exact_blocks=exact > 0,
        exact_tokens=exact or None,
        prompt_piece=_PROMPT_PIECE,
        shared_tokens=_SHARED_TOKENS,
        exact_batches=exact > 0,
        kv_memory=engine.kv_blocks * engine.block_bytes,
    )
    return VllmBackend(engine, tokenizer, info)


def read_options(options: Sequence[str]) -> dict[str, Any]:
    """Parse vLLM engine arguments, given as `name=value`; a value is JSON, or otherwise a text."""
    found = dict[str, Any]()
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise ModelError(f"--engine-option {option}: write it as name=value")
        name = name.strip().replace("-", "_")
        found[name] = value
        with suppress(ValueError):
            found[name] = json.loads(value)
    return found


def _weights(configuration: Path) -> tuple[int, str]:
    """Return the number of weights, and a SHA-256 of configuration, headers and last weights."""
    parameters, digest = 0, hashlib.sha256(configuration.read_bytes())
    for path in sorted(configuration.parent.glob("*.safetensors")):
        with path.open("rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
            file.seek(max(file.tell(), path.stat().st_size - _SAMPLE))
            digest.update(header + file.read())
        tensors = json.loads(header)
        parameters += sum(math.prod(each.get("shape", [0])) for each in tensors.values())
    return parameters, digest.hexdigest()
