"""A sentence-transformers model's files: where they are, which version, and how they are loaded."""

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

from .failures import RetrievalError

_KINDS = (".json", ".txt", ".model", ".safetensors")
_SAMPLES = 256
_SAMPLE = 4096


def model_directory(name: str) -> Path:
    """The directory of a model: a local one, or that of a Hugging Face id, fetched once.

    Raises:
        RetrievalError: it is neither, or the hub cannot be reached.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    patterns = [f"*{kind}" for kind in _KINDS]
    unused = ["onnx/*", "openvino/*"]
    try:
        try:
            where = snapshot_download(
                name, allow_patterns=patterns, ignore_patterns=unused, local_files_only=True
            )
        except OSError:
            where = snapshot_download(name, allow_patterns=patterns, ignore_patterns=unused)
    except Exception as error:  # the hub's client lets the errors of its network stack through
        reason = str(error).strip().split("\n", 1)[0]
        raise RetrievalError(
            f"{name} is not a directory, and the hub has no such model or cannot be reached: "
            f"{reason}"
        ) from error
    return Path(where)


def fingerprint(directory: Path) -> str:
    """Names a model's version by its files, wherever they lie; reads at most 1 MiB of weights.

    Configuration and vocabulary count in full, weights by their size and by evenly spread samples:
    any training changes nearly all weights, so any other version differs.

    Raises:
        RetrievalError: the directory holds no model.
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
    """The model in a directory, of a class of sentence-transformers.

    transformers is kept from drawing progress bars and printing advice while it loads.
    """
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
