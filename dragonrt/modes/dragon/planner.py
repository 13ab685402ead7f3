"""The draft planner: which forward a side computes next, and the drafts it gives (SPEC 1.3, 1.7).

A side drafts at most `run_ahead` undecided steps. If it follows, its drafted sequence adopts the
peer's tokens where they are likelier to become the target. One forward reads the prefixes without a
draft, and the tokens that prompt lookup finds behind them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dragonrt.control.scheduler import Aggregator
from dragonrt.distributions import Step
from dragonrt.modes.dragon.decision import Decision
from dragonrt.modes.dragon.drafts import Drafts
from dragonrt.modes.dragon.settings import DragonSetup
from dragonrt.modes.mode import Prediction, Prepared, Span, Work
from dragonrt.modes.prefix import Lookup, extended
from dragonrt.privacy.evidence import RowShares, SideDraft, likely
from dragonrt.side import other

BLOCK = 8  # positions that one forward computes at most along the peer's tokens (SPEC 1.7)


@dataclass(frozen=True, slots=True)
class DraftPostprocess:
    """Implements Postprocess: turns the predictions of a forward into this side's drafts.

    It drafts after each prefix of `span`, then after each token of `guess`, found by prompt lookup,
    until a draft differs from it. KV sequence n of the model reads a chunk of file `files[n]`.
    """

    setup: DragonSetup
    span: Span
    guess: Sequence[int]
    files: Sequence[int]

    def __call__(self, predictions: Sequence[Prediction]) -> list[SideDraft]:
        """Return drafts as far as the guess comes true; `predictions` are in the above order."""
        span, drafts = self.span, list[SideDraft]()
        hashes = extended(span.hashes, self.guess)
        for step, each in enumerate(predictions, start=span.first):
            beyond = step - len(span.tokens)
            if beyond > 0 and drafts[-1].token != self.guess[beyond - 1]:
                break
            drafts.append(self._draft(step, hashes[step], each))
        return drafts

    def _draft(self, step: int, prefix_hash: int, prediction: Prediction) -> SideDraft:
        rule, codec = self.setup.rule, self.setup.codec
        quantized = codec.quantize(rule.shape(prediction.p), Step(step))
        distribution = quantized.distribution
        token = rule.draft(self.setup.side, step, distribution)
        tokens = likely(distribution, token)
        return SideDraft(
            step,
            prefix_hash,
            token,
            codec.encode(quantized),
            prediction.relevance,
            0.0,
            distribution,
            RowShares(self.files, tokens, prediction.weights, prediction.shares(tokens)),
            prediction.kept,
        )


class Planner:
    """Chooses a side's next forward, and extends its prefix by drafts already known (SPEC 1.7)."""

    def __init__(self, setup: DragonSetup, drafts: Drafts, decision: Decision) -> None:
        question, settings = setup.question, setup.settings
        self._setup = setup
        self._drafts = drafts
        self._decision = decision
        self._ahead = settings.placement is not Aggregator.SYNC
        self._run_ahead = settings.run_ahead if self._ahead else 1
        self._follows = settings.follow and self._ahead
        self._max_tokens, self._stop_tokens = question.max_tokens, question.stop_tokens
        self._prepared, self._has_read = Prepared(), False
        self._lookup = Lookup()

    def prepared(self, prepared: Prepared) -> None:
        """Store the tokens of question and documents, which prompt lookup searches for drafts."""
        self._prepared = prepared
        self._lookup = Lookup((prepared.question, *prepared.texts), len(prepared.files))

    @property
    def limit(self) -> int:
        """The length in tokens of the longest prefix after which this side may draft for now."""
        return min(self._drafts.decided + self._run_ahead, self._max_tokens) - 1

    def wanted(self) -> Work | None:
        """Append known drafts to the prefix, return the next forward, None if no step is free."""
        self.extend()
        next_steps = self.next_steps()
        return None if next_steps is None else self._work(Span.of(self._drafts.prefix, *next_steps))

    def extend(self) -> None:
        """Append known drafts to the prefix while it is not longer than `limit` (SPEC 1.7).

        A step that both sides drafted gets its target token if that is quick, otherwise this side's
        draft. A step that only the peer drafted gets that draft if the peer's acceptance is higher.
        """
        drafts, limit, prefix = self._drafts, self.limit, self._drafts.prefix
        side, rates = self._setup.side, self._decision.acceptance
        while len(prefix) <= limit:
            if len(prefix) > drafts.decided and prefix.tokens[-1] in self._stop_tokens:
                return
            own = drafts.own_draft(len(prefix))
            theirs = drafts.their_draft(len(prefix)) if self._follows else None
            if own is not None:
                target = None if theirs is None else self._decision.target(own, theirs)
                prefix.append(own.token if target is None else target)
            elif theirs is not None and rates[other(side)] > rates[side]:  # likelier the target
                prefix.append(theirs.token)
            else:
                return

    def next_steps(self) -> tuple[int, int] | None:
        """Return the first and last step to draft next; None if all permitted ones have drafts."""
        drafts, prefix = self._drafts, self._drafts.prefix
        last = min(len(prefix), self.limit)
        if last > drafts.decided and prefix.tokens[last - 1] in self._stop_tokens:
            last -= 1
        first = drafts.decided
        while first <= last and drafts.own_draft(first) is not None:
            first += 1
        return (first, min(last, first + BLOCK - 1)) if first <= last else None

    def computed(self, span: Span, found: list[SideDraft], seconds: float) -> list[SideDraft]:
        """Queue the drafts `found` by a forward over `span`, unless the prefix has changed there.

        Returns those queued. As delay each gets an equal share of `seconds`, 0 in the first call.
        """
        prefix, last = self._drafts.prefix, len(span.tokens)
        # The first one needs no forward, or reads all that was decided: it says nothing of others.
        decode_s, self._has_read = seconds / len(found) if self._has_read else 0.0, True
        if len(prefix) < last or prefix.hashes[last] != span.hashes[last]:
            found = []
        kept: list[SideDraft] = []
        for place, each in enumerate(found):
            if each.step > last and not self._reaches(each.step, found[place - 1].token):
                break
            kept.append(replace(each, decode_s=decode_s))
            self._drafts.own.put(kept[-1])
        return kept

    def _reaches(self, step: int, token: int) -> bool:
        """Extend the prefix to `step` by an own draft; False if it has another token there."""
        prefix = self._drafts.prefix
        if step > self.limit:
            return False
        if len(prefix) < step:
            prefix.append(token)
        return prefix.tokens[step - 1] == token

    def _work(self, span: Span) -> Work:
        tokens, guess = span.tokens, list[int]()
        if tokens and self._follows and self._prepared.exact_blocks:
            room = self._max_tokens - len(tokens) - 1
            guess = self._lookup.guess(tokens, room, self._stop_tokens)
        postprocess = DraftPostprocess(self._setup, span, guess, self._prepared.files)
        following = self._following(span) if self._ahead else None
        return Work(postprocess, span, guess, following=following)

    def _following(self, span: Span) -> Callable[[list[SideDraft]], Work | None]:
        """Return what gives the forward after one over `span` that goes as drafted."""

        def following(made: list[SideDraft]) -> Work | None:
            new = [draft.token for draft in made[len(span.tokens) - span.first :]]
            length = len(span.tokens) + len(new)
            if new[-1] in self._stop_tokens or length >= self._max_tokens:
                return None
            return self._work(Span([*span.tokens, *new], extended(span.hashes, new), length))

        return following
