"""Train the byte-level BPE tokenizer that all models share.

Newlines and digits are split one by one, so that encoding a prompt in parts equals encoding it
whole, and numbers are copied digit by digit.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from .corpus import Corpus
from .countries import country_facts
from .notes import note
from .sample import text_of

END, PAD = "<|endoftext|>", "<|pad|>"
VOCABULARY = 8192
CONTEXT = 1024


def train_tokenizer(
    directory: Path, vocabulary: int = VOCABULARY, notes: int = 30_000
) -> PreTrainedTokenizerFast:
    """Return a tokenizer for the texts of a corpus directory and for generated notes.

    Its first two entries are the end of a text and the padding.
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n"), "isolated"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=16,
        show_progress=False,
    )
    trained.train_from_iterator(_texts(directory, notes), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=trained,
        bos_token=END,
        eos_token=END,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _texts(directory: Path, notes: int) -> Iterator[str]:
    for path in sorted(directory.glob("*.txt")):
        every = 3 if path.name.startswith("se-") else 1  # a third of the novels
        lines = path.read_text().split("\n")
        yield from (line for i, line in enumerate(lines) if line and i % every == 0)
    r = Random(1)
    for _ in range(notes):
        yield text_of(note(r))
    corpus = Corpus.read(directory)
    if corpus.countries:
        for _ in range(notes // 4):
            yield text_of(country_facts(r, corpus))


def tokenizer(corpus: Path, out: Path) -> None:
    """Train the tokenizer of the dragon models; a minute for 45 MB of text."""
    train_tokenizer(corpus).save_pretrained(out)
