"""A mode from outside: the block `mode` of docs/adding.md as a file, asked like one of ours.

`python docs/examples/mode.py plain.py` imports that file, which registers its mode.
"""

import asyncio
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import dragonrt
from dragonrt import bundled


def load(file: Path) -> dragonrt.ModeEntry:
    """Return the entry of the mode that a file registers."""
    spec = spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is no Python file")
    module = sys.modules[file.stem] = module_from_spec(spec)
    spec.loader.exec_module(module)
    entries = [each for each in vars(module).values() if isinstance(each, dragonrt.ModeEntry)]
    return entries[0]


async def ask(mode: str, question: str) -> dragonrt.Answer:
    """Ask a cloud of this process, which has the mode, too."""
    async with (
        dragonrt.serve_cloud(documents=bundled.documents("cloud"), port=0) as port,
        dragonrt.connect(f"127.0.0.1:{port}", mode=mode) as device,
    ):
        return await device.ask(question, seed=0)


if __name__ == "__main__":
    entry = load(Path(sys.argv[1]))
    print(entry.name, asyncio.run(ask(entry.name, "What is The Paper Garden?")).text)
