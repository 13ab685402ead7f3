"""The kept inputs of the fuzzer break nothing, and what is broken is found."""

import pytest

from dragonrt.wire.reasons import MessageError, Reason

# Scripts are beside the packages and are not installed.
from scripts import fuzz_targets
from scripts.fuzz_targets import TARGETS
from scripts.fuzzing import read_corpus


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_what_was_kept_breaks_nothing(target: str) -> None:
    inputs = read_corpus(target)
    assert len(inputs) >= 3
    for data in (b"", *inputs):
        TARGETS[target](data)


def test_an_undocumented_error_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def decode(body: bytes) -> None:
        raise KeyError(body) if body[:1] == b"\x95" else MessageError(Reason.MALFORMED, "")

    monkeypatch.setattr(fuzz_targets, "decode", decode)
    opening = next(data for data in read_corpus("messages") if data[:1] == b"\x95")
    fuzz_targets.messages(b"")
    with pytest.raises(KeyError):
        fuzz_targets.messages(opening)
