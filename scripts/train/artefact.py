"""Write what was trained to the two files that `dragonrt.control.trained` reads."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from dragonrt.control.trained import FORMATS, KIND, Verifier, files
from dragonrt.errors import ControlError


def save_verifier(verifier: Verifier, path: Path) -> None:
    """Write a verifier's two files. Raises ControlError if that cannot be done."""
    record = {
        "format": FORMATS["verifier"],
        "kind": KIND,
        "features": verifier.features,
        **asdict(verifier.pair),
        "threshold": verifier.threshold,
        "ratio": verifier.ratio,
        "trained_on": dict(verifier.trained_on),
    }
    arrays = {"weight": verifier.weight, "bias": np.array([verifier.bias], np.float32)}
    weights_file, record_file = files(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        weights_file.write_bytes(save(arrays))
        text = json.dumps(record, indent=2, ensure_ascii=False)
        record_file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ControlError(f"cannot write the verifier {path}: {error.strerror or error}") from None
