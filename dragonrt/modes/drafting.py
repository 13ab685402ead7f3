"""Drafts made of what a side's model said: pure, for heads."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dragonrt.distributions import Codec, encode_distribution
from dragonrt.modes.deciding import Listing
from dragonrt.modes.drafts import SideDraft
from dragonrt.modes.mode import Prediction, Span
from dragonrt.modes.prefix import extended
from dragonrt.modes.row_shares import RowShares
from dragonrt.sampling.aggregation import Coupled, Rule
from dragonrt.side import Side


@dataclass(frozen=True, slots=True)
class Drafts:
    """What one forward gave: own drafts of consecutive steps, `guessed` tokens being tried.

    `branches` are drafts beside them, each after a prefix of its own.
    """

    guessed: int
    drafts: list[SideDraft]
    branches: list[SideDraft] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DraftMaker:
    """How one side drafts in one answer; with each draft come so many next best `others`."""

    side: Side
    rule: Rule
    codec: Codec
    others: int

    def drafts(
        self,
        span: Span,
        guess: Sequence[int],
        branches: Sequence[Span],
        said: Sequence[Prediction],
        listing: Listing,
        files: Sequence[int],
    ) -> Drafts:
        """After the prefixes of the span, along the guess while it comes true, and on branches.

        `said` is in that order; row n of the model reads a document of the own file `files[n]`.
        """
        count = span.count + len(guess)
        along: list[SideDraft] = []
        hashes = extended(span.hashes, guess)
        for step, each in enumerate(said[:count], start=span.first):
            beyond = step - len(span.tokens)
            if beyond > 0 and along[-1].token != guess[beyond - 1]:
                break
            along.append(self._draft(step, hashes[step], each, listing, files))
        beside = [
            self._draft(branch.first, branch.hashes[-1], each, listing, files)
            for branch, each in zip(branches, said[count:], strict=False)
        ]
        return Drafts(len(guess), along, beside)

    def _draft(
        self, step: int, prefix_hash: int, said: Prediction, listing: Listing, files: Sequence[int]
    ) -> SideDraft:
        p = self.rule.shape(said.p)
        quantized = self.codec.quantize(p, listing(step, p))
        distribution = quantized.distribution
        token = self.rule.draft(self.side, step, distribution)
        others: tuple[tuple[int, float], ...] = ()
        if self.others and isinstance(self.rule, Coupled):
            others = tuple(self.rule.runners_up(step, distribution, self.others))
        return SideDraft(
            step,
            prefix_hash,
            token,
            encode_distribution(self.codec, quantized),
            said.relevance,
            0.0,
            distribution,
            RowShares.of(said, files, token, distribution),
            others,
        )
