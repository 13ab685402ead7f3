"""What one side reads next, and the drafts that this gives (SPEC 1.3, 1.7, 1.9).

One forward reads the prefixes of the line that have no draft yet, goes on along what the lookup in
the documents offers, and has a row for every branch that is worth one.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dragonrt.control.branching import MOST as MOST_BRANCHES
from dragonrt.control.branching import Branching
from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import Codec
from dragonrt.modes.aggregating import Aggregating
from dragonrt.modes.branches import Branches
from dragonrt.modes.deciding import Deciding
from dragonrt.modes.drafting import DraftMaker, Drafts
from dragonrt.modes.drafts import DraftQueue, SideDraft
from dragonrt.modes.lookahead import Lookahead
from dragonrt.modes.lookup import Lookup
from dragonrt.modes.missing import MissingEntries
from dragonrt.modes.mode import Prediction, Prepared, Span, Work
from dragonrt.modes.prefix import TokenPrefix, extended
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.sampling.aggregation import Coupled, Rule
from dragonrt.side import Side


class ReadingAhead:
    """Plans the forwards of one side along `line`, which it extends, and queues drafts in `own`.

    `their_draft` gives the other side's draft behind the first so many tokens of the line.
    `decided` is everywhere the number of decided tokens, which the line begins with.
    """

    def __init__(
        self,
        side: Side,
        question: Question,
        settings: DragonSettings,
        rule: Rule,
        codec: Codec,
        line: TokenPrefix,
        own: DraftQueue,
        theirs: DraftQueue,
        their_draft: Callable[[int], SideDraft | None],
        deciding: Deciding,
        missing: MissingEntries,
        aggregating: Aggregating,
    ) -> None:
        self._side = side
        self._question = question
        self._line = line
        self._own = own
        self._deciding = deciding
        self._missing = missing
        self._aggregating = aggregating
        self._ahead = settings.placement is not Aggregator.SYNC
        self._lookahead = Lookahead(
            settings.run_ahead if self._ahead else 1,
            question.max_tokens,
            question.stop_tokens,
            settings.follow and self._ahead,
            line,
            own,
            their_draft,
            deciding.light_target,
            lambda: aggregating.estimates.trusts_other(side),
        )
        coupled = settings.rule == Coupled.name
        self.branching = Branching(settings.most_branches if coupled else 0)
        others = MOST_BRANCHES if self.branching.on else 0
        self._drafting = DraftMaker(side, rule, codec, others)
        self._branches = Branches(question.stop_tokens, own, theirs, deciding.light_target)
        self._prepared = Prepared()
        self._lookup = Lookup(())
        self._has_read = False

    def prepared(self, prepared: Prepared) -> None:
        """The documents are there."""
        self._prepared, self._lookup = prepared, Lookup(prepared.texts)

    def wanted(self, decided: int, connected: bool) -> Work | None:
        """The next forward, or None: all that may be drafted is. Alone there are no branches."""
        self._lookahead.extend(decided)
        span = self._lookahead.unpredicted(decided)
        if span is None:
            return None
        line = Span.of(self._line, *span)
        return self._drafts(line, self._beside(line, decided) if connected else [])

    def took(self, work: Work, result: Drafts, seconds: float, decided: int) -> list[SideDraft]:
        """The drafts that a forward gave, as far as the line is alive that they are for."""
        span, line = work.span, self._line
        if span is None:
            raise ValueError("a forward reads a line")
        drafts, last = result.drafts, len(span.tokens)
        self._lookup.learn(result.guessed, len(drafts) - span.count)
        # The first one needs no forward, or reads all that was decided: it says nothing of others.
        if self._has_read and span.count == 1 and not result.guessed:
            self.branching.took(len(result.branches), seconds)
        decode_s, self._has_read = seconds / len(drafts) if self._has_read else 0.0, True
        if len(line) < last or line.hashes[last] != span.hashes[last]:
            drafts = []
        kept = []
        for place, each in enumerate(drafts):
            step, before = each.step, drafts[place - 1].token
            if step > last and not self._lookahead.step_to(step, before, decided):
                break
            self._aggregating.estimates.decoded(self._side, step, decode_s)
            kept.append(replace(each, decode_s=decode_s))
        for branch, each in zip(work.branches, result.branches, strict=False):
            if branch.hashes[min(decided, branch.first)] == line.hashes[decided]:
                kept.append(each)
        for each in kept:
            self._own.put(each)
        return kept

    def _beside(self, span: Span, decided: int) -> list[Span]:
        """The branches that are worth a row beside the span (SPEC 1.9)."""
        count = self._worth()
        if not (count and self._ahead):
            return []
        return self._branches.leaves(
            self._line.tokens[:decided],
            self._line.hashes[: decided + 1],
            self._lookahead.limit(decided),
            count,
            span.hashes[span.first :],
        )

    def _worth(self) -> int:
        return self.branching.count(self._aggregating.rtt_s, self._aggregating.bits_per_s)

    def _drafts(self, span: Span, branches: Sequence[Span] = ()) -> Work:
        """Drafts after every prefix of the span, after what its documents say next, and beside."""
        guess, listing = self._guess(span.tokens), self._deciding.listing(self._missing.tau)

        def head(said: Sequence[Prediction]) -> Drafts:
            files = self._prepared.files
            return self._drafting.drafts(span, guess, branches, said, listing, files)

        def following(result: Drafts) -> Work | None:
            new = [draft.token for draft in result.drafts[span.count - 1 :]]
            length = len(span.tokens) + len(new)
            ends = new[-1] in self._question.stop_tokens or length >= self._question.max_tokens
            if ends or not self._ahead:
                return None
            hashes = extended(span.hashes, new)
            return self._drafts(Span([*span.tokens, *new], hashes, length))

        alone = self._worth() == 0
        return Work(head, span, guess, following=following if alone else None, branches=branches)

    def _guess(self, tokens: list[int]) -> list[int]:
        """What the lookup offers, as far as the answer may go."""
        if not (tokens and self._lookahead.follows and self._prepared.exact_blocks):
            return []
        guess = self._lookup.guess(tokens, self._question.max_tokens - len(tokens) - 1)
        for length, token in enumerate(guess):
            if token in self._question.stop_tokens:
                return guess[:length]
        return guess
