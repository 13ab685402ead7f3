"""The engines that run models, by name. Each is imported when a model is loaded by it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dragonrt import bundled
from dragonrt.backends.backend import Backend
from dragonrt.backends.llama_cpp.model_file import file_of
from dragonrt.bundled import SMOLLM2, SMOLLM2_DRAFT
from dragonrt.errors import ModelError
from dragonrt.side import Precision, TorchDevice

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Order:
    """The model to load, and how; see `LanguageModel.load`."""

    name: str
    device: TorchDevice = "auto"
    dtype: Precision = "auto"
    threads: int | None = None
    adapter: Path | None = None
    library: Path | None = None
    options: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Return the file or directory that the name may be."""
        return file_of(self.name)

    @property
    def checkpoint(self) -> str:
        """Return the directory or hub id. Raises ModelError for what is neither."""
        if self.path.is_dir():
            return str(self.path)
        if self.path.is_file() or self.name.count("/") != 1:
            raise ModelError(f"{self.name} is neither a directory nor a hub id, as owner/name")
        return self.name


def load_backend(engine: str, order: Order) -> Backend:
    """Load a model by an engine. Raises ModelError, also for an unknown engine."""
    if engine == AUTO:
        engine = _usual(order)
    if engine not in ENGINES:
        raise ModelError(f"unknown engine {engine!r}: choose one of {', '.join([AUTO, *ENGINES])}")
    try:
        return ENGINES[engine](order)
    except ModuleNotFoundError as error:
        if engine not in _EXTRAS:
            raise
        raise ModelError(f"{order.name} needs {error.name}: {_EXTRAS[engine]}") from None


def _usual(order: Order) -> str:
    """Return the engine for a name: files are llama.cpp's, checkpoints transformers'."""
    name, path = order.name, order.path
    if path.is_file():
        return "llama.cpp"
    if path.suffix == ".gguf" and not path.is_dir():
        raise ModelError(f"there is no file {path}")
    if path.is_dir() or name.count("/") == 1:
        return "transformers"
    raise ModelError(
        f"{name} is neither a bundled model ({', '.join(bundled.models())}), nor {SMOLLM2} "
        f"or {SMOLLM2_DRAFT}, nor a directory, nor a GGUF file, nor on the hub, which is "
        "written owner/name, or hf.co/owner/name:Q4_K_M for a GGUF file"
    )


def _llama_cpp(order: Order) -> Backend:
    from dragonrt.backends.llama_cpp.backend import load_model

    if not order.path.is_file():
        raise ModelError(f"{order.name} is no GGUF file, which llama.cpp needs")
    if order.dtype != "auto":
        raise ModelError(f"{order.name} has number types of its own: leave out --dtype")
    if order.device not in ("auto", "cpu"):
        raise ModelError(f"llama.cpp's build decides where {order.name} runs: leave out --on")
    _without_options("llama.cpp", order)
    return load_model(
        order.path, threads=order.threads, adapter=order.adapter, library=order.library
    )


def _transformers(order: Order) -> Backend:
    from dragonrt.backends.transformers_.checkpoint import load_model

    _without_options("transformers", order)
    return load_model(order.checkpoint, order.device, order.dtype, order.threads, order.adapter)


def _vllm(order: Order) -> Backend:
    from dragonrt.backends.vllm_.engine import load_model

    if order.device != "auto":
        raise ModelError("vLLM's build decides where a model runs: leave out --on")
    if order.adapter is not None:
        raise ModelError("vLLM reads weights as they are: merge the adapter into them")
    return load_model(order.checkpoint, order.dtype, order.threads, order.options)


def _without_options(engine: str, order: Order) -> None:
    if order.options:
        raise ModelError(f"{engine} has no engine options: leave out --engine-option")


ENGINES: Mapping[str, Callable[[Order], Backend]] = {
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
    "vllm": _vllm,
}
_EXTRAS = {
    "transformers": "pip install 'dragonrt[transformers]', or name a GGUF file",
    "vllm": "pip install 'dragonrt[vllm]'",
}
"""Commands that install engines whose libraries are not in every installation."""
