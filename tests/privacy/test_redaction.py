"""r(x), what a cloud reads of a text (SPEC 1.10), ahead of what is decided."""

import random
from itertools import product

from dragonrt.modes.prefix import TokenPrefix
from dragonrt.privacy.redaction import Redacted, longest_redacted, redacted
from tests.oracles.dragon import read_by_cloud

MARKER = (3, 4)


def test_the_place_ahead_follows_the_line_wherever_it_goes() -> None:
    """Nothing may be left there of a text that the line went along before."""
    chance = random.Random(5)
    line, decisions = TokenPrefix(0), list[tuple[int, bool]]()
    told = Redacted(line, TokenPrefix(0), 0, MARKER)
    for _ in range(300):
        if len(line) == len(decisions) or chance.random() < 0.5:
            line.append(chance.randrange(3))
        else:
            line.replace_from(chance.randrange(len(decisions), len(line)), [chance.randrange(3)])
        for step in range(len(decisions), len(line) + 1):
            ahead = line.tokens[len(decisions) : step]
            read = TokenPrefix(0, [*read_by_cloud(decisions, MARKER), *ahead])
            assert told.place(step) == (len(read), read.hash)
        if chance.random() < 0.2:
            decisions.append((line.tokens[len(decisions)], chance.random() < 0.4))
            told.append(*decisions[-1])
            assert told.prefix.tokens[: told.length] == redacted(decisions, MARKER)
            assert redacted(decisions, MARKER) == read_by_cloud(decisions, MARKER)


def test_there_is_room_for_the_longest_reading() -> None:
    for count, marker in product(range(1, 8), ((3,), MARKER, (3, 4, 5))):
        runs = product((False, True), repeat=count)
        longest = max(len(redacted([(7, each) for each in run], marker)) for run in runs)
        assert longest <= longest_redacted(count, marker) <= longest + 1
