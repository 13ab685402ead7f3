"""The Question: prompt, conversation and settings of one answer, the same in every mode."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from msgspec import Meta

from dragonrt.errors import DragonError
from dragonrt.privacy.disclosure import longest_redacted
from dragonrt.sampling.samplers import Sampler
from dragonrt.settings import U64, LongText, check, own, setting
from dragonrt.wire.fields import (
    MAX_CONVERSATION,
    MAX_DOCUMENTS,
    MAX_STOP_TOKENS,
    MAX_TOKENS,
    MAX_TURNS,
    Token,
)

Turn = tuple[LongText, LongText]
"""An earlier question and its answer."""

Ranked = Annotated[int, Meta(ge=0, le=20)]
"""How many of the likeliest tokens a question may ask for with each of its answer's."""

GREEDY = Sampler(temperature=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question after a conversation, and its answer's settings. Raises SettingError.

    `accepted` are tokens after which the answer resumes. `shown` are the newest answers of
    `history` as other sides may read them. Documents whose cosine to the question is under
    `relevance_floor` are skipped; None is the mode's default. With `chunk` n, only chunk n of file
    `document`, from 0, is read. `top_logprobs` n returns tokens' probabilities and n alternatives.
    """

    prompt: LongText = setting("", "The question.", traced=False)
    instructions: LongText = setting("", "Instructions for all turns.", traced=False)
    history: Annotated[tuple[Turn, ...], Meta(max_length=MAX_TURNS)] = setting(
        (), "Earlier turns.", traced=False
    )
    seed: U64 = setting(0, "Random seed. Default: a new one per answer.", daily=True)
    sampler: Sampler = GREEDY
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_TOKENS)] = setting(
        64, "Most tokens of an answer.", letter="n", daily=True
    )
    stop_tokens: Annotated[tuple[Token, ...], Meta(max_length=MAX_STOP_TOKENS)] = setting(
        (), "Tokens that end the answer.", traced=False
    )
    documents: Annotated[int, Meta(ge=0, le=MAX_DOCUMENTS)] | None = setting(
        None,
        "Chunks that each side reads. Default: 1, or 2 if they are nearly as relevant.",
        option="documents_per_side",
    )
    relevance_temperature: Annotated[float, Meta(ge=1e-9, le=1e9)] = setting(
        0.2, "Divisor of relevances. A low one weighs the best document alone.", rare=True
    )
    relevance_floor: Annotated[float, Meta(ge=-1, le=1)] | None = own(
        None,
        "Skip documents below this cosine. Default: 0.25 at --disclose answer and redacted.",
        rare=True,
    )
    reweight_every: Annotated[int, Meta(ge=0, le=MAX_TOKENS)] = setting(
        0, "Tokens after which the documents are ranked again. 0: never.", rare=True
    )
    doubt: Annotated[float, Meta(ge=0, le=100)] = setting(
        1.0, 'Relevance that a document loses for "I don\'t know." after it. 0: none.', rare=True
    )
    accepted: Annotated[tuple[Token, ...], Meta(max_length=MAX_TOKENS)] = setting(
        (), "Tokens decided already.", traced=False
    )

    document: LongText = own(
        "", "Own documents to answer from: a file, folder/, #tag, since:2026-01-31. Default: all."
    )
    chunk: Annotated[int, Meta(ge=0)] | None = own(None, traced=False)
    parts: Literal["on", "off"] = own(
        "on", "Answer the parts of a question one after another: on or off."
    )
    shown: Annotated[tuple[LongText, ...], Meta(max_length=MAX_TURNS)] = own((), traced=False)
    top_logprobs: Ranked | None = own(None, traced=False)

    def __post_init__(self) -> None:
        check(self)
        size = sum(len(text.encode()) for turn in self.history for text in turn)
        if size > MAX_CONVERSATION:
            raise DragonError(f"the history must be at most {MAX_CONVERSATION} bytes")

    @property
    def most_documents(self) -> int:
        """Return the largest number of document chunks that a side reads for this question."""
        return 2 if self.documents is None else self.documents

    def check_vocabulary(self, vocabulary: int) -> None:
        """Raise DragonError if a stop token or an accepted token is not below `vocabulary`."""
        for token in (*self.stop_tokens, *self.accepted):
            if token >= vocabulary:
                raise DragonError(f"token {token} is outside the vocabulary of {vocabulary}")

    def resumed(self, accepted: tuple[int, ...], mark: str | None = None) -> "Question":
        """Return a copy to send to a peer: the answer resumes after the decided tokens `accepted`.

        In the copy's history, the answers in `self.shown` replace the newest answers. If `mark` is
        given, this text replaces each older answer.
        """
        answers = [answer if mark is None else mark for _, answer in self.history]
        return replace(self, history=self._shown_after(answers), shown=(), accepted=accepted)

    def redacted(self, mark: str, accepted: Sequence[int], marker: Sequence[int]) -> "Question":
        """Return the question to send to a cloud from which tokens are withheld.

        `accepted` are the decided tokens, with the tokens `marker` in place of the withheld ones.
        In the history, `self.shown` replaces the newest answers, the text `mark` each older one.
        """
        return replace(
            self.resumed(tuple(accepted), mark),
            max_tokens=min(MAX_TOKENS, longest_redacted(self.max_tokens, marker)),
        )

    def _shown_after(self, unknown: Sequence[str]) -> tuple[Turn, ...]:
        """The history with the shown answers; `unknown` in place of those before."""
        before = max(0, len(self.history) - len(self.shown))
        answers = [*unknown[:before], *self.shown][-len(self.history) :]
        return tuple(
            (asked, answer) for (asked, _), answer in zip(self.history, answers, strict=False)
        )
