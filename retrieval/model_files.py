"""Find, identify and load the files of a sentence-transformers model."""

import hashlib
import importlib
import json
from functools import partial
from pathlib import Path
from typing import Any

from .failures import RetrievalError

_KINDS = (".json", ".txt", ".model", ".safetensors")
_SAMPLES = 256
_SAMPLE = 4096


def model_directory(name: str) -> Path:
    """Return a local directory, or that of a Hugging Face id, which is downloaded once.

    Raises RetrievalError if it is neither, or the hub cannot be reached.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    patterns = [f"*{kind}" for kind in _KINDS]
    download = partial(
        snapshot_download, name, allow_patterns=patterns, ignore_patterns=["onnx/*", "openvino/*"]
    )
    try:
        try:
            return Path(download(local_files_only=True))
        except OSError:
            return Path(download())
    except Exception as error:  # the hub's client lets the errors of its network stack through
        reason = str(error).strip().split("\n", 1)[0]
        raise RetrievalError(
            f"{name} is not a directory, and the hub has no such model or cannot be reached: "
            f"{reason}"
        ) from error


def fingerprint(directory: Path) -> str:
    """Return a hash of a model's files; of weights, of their size and evenly spread samples.

    Training changes nearly all weights, so samples of 1 MiB tell versions apart. Raises
    RetrievalError if the directory holds no model.
    """
    modules = directory / "modules.json"
    folders = [directory]
    if modules.is_file():
        paths = [module["path"] for module in json.loads(modules.read_text(encoding="utf-8"))]
        folders += [directory / path for path in paths if path and (directory / path).is_dir()]
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in _KINDS]
    if not any(path.suffix == ".safetensors" for path in files):
        raise RetrievalError(f"{directory} holds no model: it has no .safetensors file")
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        size = path.stat().st_size
        digest.update(f"{path.relative_to(directory).as_posix()} {size}\n".encode())
        with path.open("rb") as file:
            if path.suffix != ".safetensors" or size <= _SAMPLES * _SAMPLE:
                digest.update(file.read())
                continue
            for sample in range(_SAMPLES):
                file.seek((size - _SAMPLE) * sample // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:32]


def loaded(kind: str, directory: Path, **options: Any) -> Any:
    """Load the model in a directory, of a class `kind` of sentence-transformers, silently."""
    logging = importlib.import_module("transformers.utils.logging")  # it is not fully typed
    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        import sentence_transformers

        return getattr(sentence_transformers, kind)(
            str(directory),
            device="cpu",
            local_files_only=True,
            model_kwargs={"use_safetensors": True},
            **options,
        )
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
