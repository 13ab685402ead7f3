"""Download GGUF files from the Hugging Face hub, once each, into the cache of the hub's client."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dragonrt.errors import ModelError

_NAME = re.compile(r"((?:https://)?(?:hf\.co|huggingface\.co)/)?([\w.-]+/[\w.-]+)(?::([^:/]+))?")
_USUAL = "Q4_K_M"  # the quant of a name without one, as in llama.cpp and ollama
_PART = re.compile(r"-\d+-of-\d+\.gguf$")
_LIST_S = 10.0  # how long the hub may take to list the files of a repository


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of the Hugging Face hub, named as in llama.cpp: [hf.co/]OWNER/NAME:QUANT.

    `quant` is the type of its weights, such as Q4_K_M, or the file's whole name.
    """

    repository: str
    quant: str

    @classmethod
    def parse(cls, name: str) -> "HubFile | None":
        """Parse a model's name; None if it has neither hf.co/ nor :QUANT, or is a local path."""
        found = _NAME.fullmatch(name)
        if found is None or not (found[1] or found[3]) or Path(name).exists():
            return None
        return cls(found[2], found[3] or _USUAL)

    def cached_path(self) -> Path | None:
        """Return the file's path in the local cache; None if it was not downloaded yet."""
        from huggingface_hub.constants import HF_HUB_CACHE

        folder = Path(HF_HUB_CACHE) / f"models--{self.repository.replace('/', '--')}"
        try:
            commit = (folder / "refs" / "main").read_text("utf-8").strip()
        except OSError:
            return None
        files = folder / "snapshots" / commit
        names = (path.relative_to(files).as_posix() for path in files.rglob("*.gguf"))
        name = self._among(filter(_is_model, names))
        return files / name if name else None

    def fetch(self) -> Path:
        """Return the file's path in the local cache; download a missing file, with a progress bar.

        A broken download is resumed. A cached file is not compared with the hub. Raises ModelError
        if the hub does not have the file, refuses it, or cannot be reached.
        """
        if (kept := self.cached_path()) is not None:
            return kept
        # Only here: the client takes a while to import.
        from huggingface_hub import HfApi, constants, hf_hub_download
        from huggingface_hub.errors import RepositoryNotFoundError

        where = self.repository
        try:
            siblings = HfApi().model_info(where, timeout=_LIST_S).siblings or ()
            names = sorted(each.rfilename for each in siblings if _is_model(each.rfilename))
            if chosen := self._among(names):
                return Path(hf_hub_download(where, chosen))
        except RepositoryNotFoundError:
            raise ModelError(
                f"the hub does not give {where}: check its name; a private or gated one needs "
                f"`hf auth login` and its terms accepted at {constants.ENDPOINT}/{where}"
            ) from None
        except Exception as error:  # the client lets the errors of its network stack through
            reason = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
            raise ModelError(
                f"{where}:{self.quant} cannot be fetched from the hub ({reason}): try again with a "
                "network, or give a GGUF file"
            ) from error
        there = f"there are {', '.join(names)}" if names else "it has no GGUF file in one piece"
        raise ModelError(f"{where} has no {self.quant}: {there}")

    def _among(self, files: Iterable[str]) -> str:
        """Return the shortest of the names with this quant; "" if there is none."""
        wanted = rf"(?<![A-Za-z0-9]){re.escape(self.quant)}(?![A-Za-z0-9_])"
        found = [name for name in files if re.search(wanted, name, re.IGNORECASE)]
        return min(found, key=lambda name: (len(name), name), default="")


def _is_model(name: str) -> bool:
    """Return whether a file holds a whole language model: neither a part nor a projector."""
    is_projector = PurePosixPath(name).name.startswith("mmproj")
    return name.endswith(".gguf") and not is_projector and not _PART.search(name)
