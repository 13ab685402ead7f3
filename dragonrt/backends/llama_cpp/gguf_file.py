"""Write GGUF files made of others, with weights rounded by ggml's own quantiser.

Import it only to make a file: the package `gguf` takes 2 s to read a vocabulary of 49,152.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGUFReader, GGUFValueType, GGUFWriter, ReaderTensor, dequantize
from gguf import GGMLQuantizationType as Type
from numpy.typing import NDArray

from dragonrt.backends.llama_cpp.library import load_library

OnProgress = Callable[[int, int], None]
"""Called with the number of weights that are done, and of all."""

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
_WRITTEN = ("GGUF.", "general.architecture")  # by the writer itself
_ROWS = 4096  # dequantised together


class Stored(NamedTuple):
    """A tensor of a file: rows of numbers, or of the bytes of a quantised type."""

    name: str
    data: NDArray[Any]
    kind: Type


class Job(NamedTuple):
    """Makes tensors with so many weights."""

    weights: int
    make: Callable[[], Sequence[Stored]]


def write_merged(
    path: Path, source: Path, adapter: Path, on_progress: OnProgress, threads: int | None
) -> None:
    """Write a Llama's file with an adapter merged into it: see `model_file.merged`.

    Linear layers become IQ4_NL, weighed by the mean squares of their inputs. Values (`attn_v`)
    stay in Q8_0: they lose most by 4 bits and are small. The embedding stays as it is. The output
    layer, which is read whole for each token, is IQ4_NL too.
    """
    base, update = GGUFReader(source), GGUFReader(adapter)
    parts = {each.name: each for each in update.tensors}

    def tensors(tensor: ReaderTensor) -> list[Stored]:
        if len(tensor.shape) == 1:
            return [_kept(tensor)]
        if tensor.name == _EMBEDDING:
            starts = range(0, len(tensor.data), _ROWS)
            pieces = (tensor.data[each : each + _ROWS] for each in starts)
            rows = [quantised(dequantize(each, tensor.tensor_type), Type.IQ4_NL) for each in pieces]
            return [_kept(tensor), Stored(_OUTPUT, np.concatenate(rows), Type.IQ4_NL)]
        a, b, inputs = (
            _numbers(parts[f"{tensor.name}.{part}"]) for part in ("lora_a", "lora_b", "inputs")
        )
        # These sums are exact in float64, so no library's order of them changes the bytes.
        weight = _numbers(tensor) + b.T @ a
        kind = Type.Q8_0 if ".attn_v." in tensor.name else Type.IQ4_NL
        return [Stored(tensor.name, quantised(weight, kind, inputs**2), kind)]

    jobs = [Job(int(each.n_elements), partial(tensors, each)) for each in base.tensors]
    _write(path, (base, update), jobs, on_progress, threads)


def write_with_layers(path: Path, base: Path, layers: Path) -> None:
    """Write the layers of one file with the embedding, output layer and tokenizer of another."""
    files = GGUFReader(base), GGUFReader(layers)
    tensors = [
        _kept(tensor)
        for file, outer in zip(files, (True, False), strict=True)
        for tensor in file.tensors
        if (tensor.name in (_EMBEDDING, _OUTPUT)) == outer
    ]
    jobs = [Job(1, lambda: tensors)]
    _write(path, files, jobs)


def quantised(
    weight: NDArray[Any], kind: Type, importance: NDArray[Any] | None = None
) -> NDArray[np.uint8]:
    """Round a weight [rows, columns]; return the bytes of its rows.

    `importance` [columns] weighs the errors of a row.
    """
    block, size = GGML_QUANT_SIZES[kind]
    weight = np.ascontiguousarray(weight, np.float32)
    found = np.empty((len(weight), weight.shape[1] // block * size), np.uint8)
    weighing = None if importance is None else np.ascontiguousarray(importance, np.float32)
    load_library().ggml_quantize_chunk(
        kind,
        weight.ctypes.data,
        found.ctypes.data,
        0,
        *weight.shape,
        None if weighing is None else weighing.ctypes.data,
    )
    return found


def _kept(tensor: ReaderTensor) -> Stored:
    return Stored(tensor.name, tensor.data, tensor.tensor_type)


def _numbers(tensor: ReaderTensor) -> NDArray[np.float64]:
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float64)


def _write(
    path: Path,
    metadata: Sequence[GGUFReader],
    jobs: Sequence[Job],
    on_progress: OnProgress = lambda done, total: None,
    threads: int | None = None,
) -> None:
    """Write a Llama's file: metadata of others, of which the last counts, and tensors of jobs.

    The jobs run side by side in threads, by default one for each core.
    """
    writer = GGUFWriter(path, "llama")
    fields = {name: field for each in metadata for name, field in each.fields.items()}
    for name, field in fields.items():
        if not name.startswith(_WRITTEN):
            sub_type = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type)
    pool = ThreadPoolExecutor(threads or os.cpu_count())
    try:
        results = {pool.submit(job.make): job.weights for job in jobs}
        done, total = 0, sum(results.values())
        for future in as_completed(results):
            future.result()
            done += results[future]
            on_progress(done, total)
        for future in results:  # in the order of the jobs
            for name, data, kind in future.result():
                writer.add_tensor(name, data, raw_dtype=kind)
    finally:
        pool.shutdown(cancel_futures=True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
