"""What a draft is trained on: requests with the target's answers, and questions on documents."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from dragonrt.cli.options import option

from .adapter import Encoded, encoded
from .corpus import Corpus
from .draft_prompts import request, running_text
from .draft_teacher import ANSWER, CHAT, PROMPT, Row, Teacher, write_rows
from .sample import Reading

_POOL, _BATCH = 384, 96  # requests of which those of like length are answered together
_LONGEST = 300  # tokens of a request
_ANSWER = 128  # tokens of a chat's answer
_TEMPERATURES = (0.0, 0.0, 0.8, 1.0)
_COPIES, _LENGTHS = 24, (1, 2, 2, 3, 4, 6)  # runs of a document's words, and words of a run
_PASSAGES, _WORDS = 3000, 200  # of running text, of which tokens are counted
_PRIOR = 0.3  # weight of a token's number, low if it is frequent, among what was counted


def labelled(made: Encoded) -> Row:
    """Return a document with questions as a row, with the answers' tokens."""
    kinds = [PROMPT] * len(made.tokens)
    for at, *_ in made.targets:
        kinds[at] = ANSWER
    labels = [(at, token) for at, token, _ in made.targets]
    return Row(made.tokens, made.positions, made.branches, kinds, labels=labels)


def read_samples(path: Path, tokenizer: PreTrainedTokenizerBase, without: set[str]) -> list[Row]:
    """Read what `adapter-samples` wrote, but for documents with any of these questions."""
    rows: list[Row] = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            reading = Reading.read(line)
            asked = {_plain(question) for turns, _ in reading.branches for question, _ in turns}
            if asked & without:
                continue
            for alone in reading.apart():
                made = encoded(tokenizer, alone)
                rows += map(labelled, made.rows) if made else ()
    return rows


def copies(samples: Sequence[Row], tokenizer: PreTrainedTokenizerBase, r: Random) -> list[Row]:
    """Return documents with runs of their own words behind them: dense practice for copying."""
    rows = []
    for sample in samples:
        begin = sample.branches.index(1)
        row = Row.prompt(sample.tokens[:begin])
        row.kinds[-1] = PROMPT
        words = str(tokenizer.decode(row.tokens)).split()
        for _ in range(_COPIES):
            at = r.randrange(len(words))
            run = " ".join(words[at : at + r.choice(_LENGTHS)]).strip(".,;:()")
            before = r.choice(["\n", "<|im_end|>\n<|im_start|>assistant\n"])
            for text in (before, run):
                first = len(row.tokens)
                for token in tokenizer(text, add_special_tokens=False).input_ids:
                    if text is run and len(row.tokens) > first:
                        row.labels.append((len(row.tokens) - 1, token))
                    row.append(token)
                    row.kinds[-1] = PROMPT
        rows.append(row)
    return rows


def strays(corpus: Corpus) -> set[str]:
    """Return the questions of a search engine: benchmarks of speculation have them, too."""
    return {_plain(question) for question in corpus.stray_questions}


def _plain(question: str) -> str:
    return "".join(c for c in question.lower() if c.isalnum() or c == " ").strip()


def draft_samples(
    corpus: Path,
    samples: Path,
    out: Path,
    *,
    base: Annotated[Path, option("Checkpoint of the target.", kind="DIR")],
    adapter: Annotated[Path, option("Its adapter for documents.", kind="DIR")],
    chats: Annotated[int, option("Pools of 384 requests.", default="4", low=1)] = 4,
    documents: Annotated[int, option("Documents with states.", default="400", low=1)] = 400,
    outputs: Annotated[int, option("Tokens that a draft says.", default="12000", low=1)] = 12000,
) -> None:
    """Write rows with the target's answers and states, and the tokens that a draft says."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(base)
    texts, counted = Corpus.read(corpus), [Counter[int]() for _ in range(4)]
    read = read_samples(samples, tokenizer, strays(texts))
    teacher = Teacher(base, adapter)
    rows = sorted(read[:documents], key=lambda row: len(row.tokens))
    for i in range(0, len(rows), 16):
        teacher.read(rows[i : i + 16])
    write_rows(rows, out / "answers.safetensors")
    teacher = Teacher(base)
    for number, prompts in enumerate(_prompts(texts, tokenizer, chats)):
        r = Random(number)
        temperatures = [r.choice(_TEMPERATURES) for _ in prompts]
        teacher.answer(prompts, _ANSWER, temperatures, tokenizer.eos_token_id)
        write_rows(prompts, out / f"chat-{number}.safetensors")
        for row in prompts:
            counted[0].update(
                t for t, k in zip(row.tokens[1:], row.kinds, strict=False) if k == CHAT
            )
    for row in read:
        counted[1].update(token for _, token in row.labels)
        counted[2].update(row.tokens)
    r = Random(0)
    for _ in range(_PASSAGES):
        counted[3].update(tokenizer(running_text(r, texts, _WORDS)).input_ids)
    chosen = _frequent(counted, len(tokenizer), outputs) | set(tokenizer.all_special_ids)
    (out / "outputs.json").write_text(json.dumps(sorted(chosen)))


def _prompts(corpus: Corpus, tokenizer: PreTrainedTokenizerBase, pools: int) -> Iterator[list[Row]]:
    """Yield requests in the chat prompt, in batches of like length."""
    r = Random(0)
    for _ in range(pools):
        pool: list[list[int]] = []
        while len(pool) < _POOL:
            message = [{"role": "user", "content": request(r, corpus)}]
            tokens: Any = tokenizer.apply_chat_template(
                message, add_generation_prompt=True, return_dict=False
            )
            if len(tokens) <= _LONGEST:
                pool.append(tokens)
        pool.sort(key=len)
        for i in range(0, _POOL, _BATCH):
            yield [Row.prompt(tokens) for tokens in pool[i : i + _BATCH]]


def _frequent(counted: list[Counter[int]], vocabulary: int, n: int) -> set[int]:
    """Return the tokens with the largest mean share; merges are numbered by their frequency."""
    ranks = [1 / (token + 100) for token in range(vocabulary)]
    shares = [_PRIOR * rank / sum(ranks) for rank in ranks]
    for counts in counted:
        for token, count in counts.items():
            shares[token] += count / counts.total()
    return set(sorted(range(vocabulary), key=lambda token: -shares[token])[:n])
