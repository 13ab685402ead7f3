"""What rounding costs a reader: divergence from its float32 weights, and right answers.

transformers runs these: SmolLM2's with the adapter merged. Each question is asked behind its own
paragraph. Divergence is KL(float32 || file) along the greedy answers in float32.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from cyclopts import Parameter

from dragonrt import bundled
from dragonrt.cli.options import option
from dragonrt.node.process.composition import load_model
from dragonrt.node.process.side_settings import SideSettings
from scripts.bench.isolation import LONGEST, share
from scripts.bench.question_sets import worlds
from scripts.bench.reference import unrounded_reader
from scripts.lab.harness import benchmark, interval, progress
from scripts.lab.intervals import Row

MEASURES = ("divergence", "f1", "f1_float32")


@benchmark(
    {"model": "{model}", "questions": "{questions}"}
    | {one: interval(one, digits=3) for one in MEASURES},
    note="Divergence in nats per token; F1 is SQuAD's. Bootstrap 95 % intervals by article.",
)
def rounding(
    file: Annotated[Path, Parameter(help="Articles with questions (JSON, as SQuAD's).")],
    /,
    *,
    model: Annotated[str, option("Name or GGUF file.", default="smollm2")] = bundled.SMOLLM2,
    questions: Annotated[int, option("The first so many.", default="200", low=1)] = 200,
) -> Iterator[Row]:
    """Ask both readers; yield divergence and F1."""
    ours, whole = load_model(SideSettings("device", model)), unrounded_reader()
    stops, every = list(ours.answer_stops), np.arange(ours.vocabulary)
    ends = {"eos_token_id": stops, "pad_token_id": stops[0], "max_new_tokens": LONGEST}
    wanted = {"output_logits": True, "return_dict_in_generate": True, "do_sample": False}
    asked, predicted = list[Row](), list[Row]()
    with tempfile.TemporaryDirectory(prefix="dragonrt-") as name:
        home, *_ = worlds(file, Path(name, "documents"), 0)
        for known in home.questions[:questions]:
            (path,) = Path(name).glob(f"documents/home/*/{known.source}")
            document = ours.encode(ours.prompt.document_text(known.group, path.read_text("utf-8")))
            prompt = ours.encode(ours.prompt.question_text((), known.question))
            ids = torch.tensor([document + prompt])
            said = whole.generate(ids, attention_mask=torch.ones_like(ids), **wanted, **ends)
            answer = said.sequences[0, ids.shape[1] :].tolist()
            p = torch.cat(said.logits).double().log_softmax(-1).numpy()
            rows = ours.rows([ours.document_kv(document)], len(prompt) + LONGEST)
            first = rows.extend(prompt).at(every)
            q = np.concatenate([first, *(each.at(every) for each in rows.extend_all(answer)[:-1])])
            for divergence in (np.exp(p) * (p - q)).sum(-1).tolist():
                predicted.append({"group": known.group, "divergence": divergence})
            rows.truncate(len(prompt))
            own = [int(first.argmax())]
            while own[-1] not in stops and len(own) < LONGEST:
                own.append(int(rows.extend(own[-1:]).at(every).argmax()))
            texts = {"f1": own, "f1_float32": answer}
            scores = {each: known.judged(ours.decode(texts[each]))["f1"] for each in texts}
            asked.append({"group": known.group, **scores})
            progress(f"asked {len(asked)} questions")
    of = dict(zip(MEASURES, (predicted, asked, asked), strict=True))
    shares = {each: share(of[each], each).to_json() for each in MEASURES}
    yield {"model": model, "questions": len(asked), **shares}
