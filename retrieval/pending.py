"""Embeddings of an update that has not been committed yet, so that it can be resumed."""

import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from .storage import make_directory, write_atomically

Vectors = NDArray[np.float32]


class Pending:
    """The folder `pending/` of an index: one file of embeddings per newly read document."""

    def __init__(self, directory: Path, fingerprint: str) -> None:
        """`directory` is the index's; `fingerprint` names the embedding model."""
        self._folder = directory / "pending"
        self._fingerprint = fingerprint

    def read(self) -> dict[str, Vectors]:
        """Chunk digest -> embedding [dimension], of all that an interrupted update finished.

        Torn files and those of another model count for nothing.
        """
        found: dict[str, Vectors] = {}
        for path in self._folder.glob("*.safetensors"):
            with suppress(SafetensorError, OSError), safe_open(path, framework="np") as file:
                notes = file.metadata()
                if notes["fingerprint"] == self._fingerprint:
                    vectors = file.get_tensor("vectors")
                    found.update(zip(json.loads(notes["digests"]), vectors, strict=True))
        return found

    def write(self, embedded: dict[str, Vectors]) -> None:
        """Keep one document's new embeddings, by chunk digest; at least one."""
        make_directory(self._folder)
        notes = {"fingerprint": self._fingerprint, "digests": json.dumps(list(embedded))}
        data = save({"vectors": np.stack(list(embedded.values()))}, metadata=notes)
        # No chunk is embedded twice, so the first one's digest names the file well.
        write_atomically(self._folder / f"{next(iter(embedded))}.safetensors", data)

    def clear(self) -> None:
        """Forget all: it has been committed."""
        shutil.rmtree(self._folder, ignore_errors=True)
