"""KV in its store: ahead of time, at first use, in idle time; and where it cannot be stored."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.mode import Span, Work
from dragonrt.modes.prefix import start_hash
from dragonrt.modes.question import Question
from dragonrt.node.process.composition import Loaded, complete_library, local_side
from dragonrt.node.process.library import Library, prefill
from dragonrt.node.process.local_side import LocalSide
from dragonrt.node.process.side_settings import SideSettings
from retrieval import KvStore, Report, RetrievalError
from tests.node.virtual import outcome

NOTES = {
    "ferry.txt": "The ferry to Lund leaves at nine from the north quay.",
    "museum.txt": "The museum of glass is closed on Mondays.",
    "bus.txt": "The last bus is at eleven.",
}
QUESTION = Question(prompt="When does the ferry leave?", documents=3, max_tokens=4)


@pytest.fixture
def settings(tmp_path: Path) -> SideSettings:
    documents = tmp_path / "documents"
    documents.mkdir()
    for name, text in NOTES.items():
        (documents / name).write_text(text)
    return SideSettings(
        "device", model="dragon-draft", on="cpu", documents=(documents,), index=tmp_path / "index"
    )


def library_of(settings: SideSettings, model: LanguageModel) -> Library:
    library = complete_library(settings, model, kv=False)
    assert library is not None
    return library


def bits(library: Library) -> dict[str, dict[str, bytes]]:
    """What is stored."""
    return {
        digest: {name: array.tobytes() for name, array in (library.kv.read(digest) or {}).items()}
        for digest in library.kv.stored()
    }


def test_of_one_document_as_many_chunks_are_found_as_are_wanted(
    settings: SideSettings, draft_model: LanguageModel
) -> None:
    ways = "\n\n".join(f"The ferry to island {n} leaves at {n}. " * 6 for n in range(9))
    (settings.documents[0] / "ferry.txt").write_text(ways)
    library = library_of(settings, draft_model)
    assert len(library.chunks_of("ferry.txt")) > 3
    for document in ("ferry.txt", "bus.txt"):
        hits = library.find("When does the ferry leave?", 3, within=document)
        assert len(hits) == (3 if document == "ferry.txt" else 1)
        assert {hit.chunk.source for hit in hits} == {document}
    with pytest.raises(RetrievalError):
        library.find("When does the ferry leave?", 3, within="tram.txt")


class Heard:
    """What a side says while it runs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, report: Report | DragonError) -> None:
        self.lines.append(str(report))
        self._more.set()

    async def line(self) -> None:
        """Wait for another line."""
        async with asyncio.timeout(60):
            await self._more.wait()
        self._more.clear()


def written(
    monkeypatch: pytest.MonkeyPatch, count: int, digests: list[str] | None = None
) -> Callable[[], Awaitable[None]]:
    """What waits until so many chunks' KV was written, and notes which."""
    loop, done, write = asyncio.get_running_loop(), asyncio.Semaphore(0), KvStore.write

    def counted(self: KvStore, digest: str, arrays: dict[str, np.ndarray]) -> int:
        size = write(self, digest, arrays)
        if digests is not None:
            digests.append(digest)
        loop.call_soon_threadsafe(done.release)
        return size

    monkeypatch.setattr(KvStore, "write", counted)

    async def wait() -> None:
        async with asyncio.timeout(60):
            for _ in range(count):
                await done.acquire()

    return wait


async def answer_of(side: LocalSide, *, late: bool = False) -> tuple[str, bytes]:
    """What a question rests on: the chunks with their scores, and what the model predicts first."""
    prepared = await side.prepare(QUESTION, verifies=True, late=late)
    work = Work(lambda found: found[0].p.tobytes(), Span([], [start_hash(QUESTION.seed)], 0))
    found = (await outcome(prepared.context, work)).value
    prepared.context.close()
    texts = [side.model.decode(each) for each in prepared.prepared.texts]
    assert sorted(texts) == sorted(NOTES.values())
    assert QUESTION.prompt in side.model.decode(prepared.prepared.question)
    return prepared.passages_hash, found


async def test_kv_has_the_same_bits_however_it_came_about(
    settings: SideSettings, draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = library_of(settings, draft_model)
    assert library.kv.stored() == set(), "nothing is computed before it is needed"
    ways = {
        way: replace(library, kv=KvStore(settings.index / way, "kv"))  # type: ignore[operator]
        for way in ("ahead", "idle", "first use")
    }
    prefill(ways["ahead"])
    wait = written(monkeypatch, len(NOTES))
    async with local_side(Loaded(settings, draft_model, ways["idle"])) as side:
        await wait()
        idle = await answer_of(side)
    never = KvStore(settings.index / "never", "kv", limit=0)  # type: ignore[operator]
    async with local_side(Loaded(settings, draft_model, replace(library, kv=never))) as side:
        fresh = await answer_of(side)
    async with local_side(Loaded(settings, draft_model, ways["ahead"])) as side:
        stored = await answer_of(side)
    assert never.stored() == set()
    assert idle == fresh == stored
    assert bits(ways["idle"]) == bits(ways["ahead"])
    assert len(bits(ways["idle"])) == len(NOTES)


async def test_idle_time_goes_to_new_files_and_to_what_was_asked_about(
    settings: SideSettings, draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, hours = settings.documents[0], range(12)
    for age, name in enumerate(["bus.txt", "museum.txt", "ferry.txt"]):
        os.utime(shelf / name, (10**9 - age,) * 2)
    (shelf / "tram.txt").write_text("\n\n".join(f"The tram of hour {n}. " * 12 for n in hours))
    os.utime(shelf / "tram.txt", (1, 1))
    library = library_of(settings, draft_model)
    sources = {chunk.digest: chunk for chunk in library.retriever.index.chunks()}
    wait = written(monkeypatch, len(sources), digests := list[str]())
    async with local_side(Loaded(settings, draft_model, library)) as side:
        with side.thread.preparing():
            asked = Question(prompt="When does the tram leave?", document="tram.txt", documents=1)
            (await side.prepare(asked, verifies=False)).context.close()
        await wait()
    order = [sources[digest] for digest in digests]
    first, *others = [each for each in order if each.source == "tram.txt"]
    assert order[0] == first
    distances = [abs(each.start - first.start) for each in others]
    assert distances == sorted(distances)
    assert len(others) > 3
    # One chunk was chosen before the question came.
    assert {each.source for each in order[2 : len(others)]} == {"tram.txt"}
    assert [each.source for each in order if each not in others][1:] == (
        ["bus.txt", "museum.txt", "ferry.txt"]
    )


async def test_a_store_that_cannot_be_written_is_a_notice(
    settings: SideSettings, draft_model: LanguageModel
) -> None:
    """As on a full disk: the system refuses every write."""
    library, heard = library_of(settings, draft_model), Heard()
    assert settings.index is not None
    (settings.index / "kv").write_text("not a directory")
    async with local_side(Loaded(settings, draft_model, library, heard)) as side:
        await heard.line()
        await answer_of(side)
        await answer_of(side)
    assert len(heard.lines) == 1


async def test_a_store_that_is_full_is_a_notice(
    settings: SideSettings, draft_model: LanguageModel
) -> None:
    library, heard = library_of(settings, draft_model), Heard()
    prefill(library)
    size = max(path.stat().st_size for path in library.kv.directory.iterdir())
    assert settings.index is not None
    library.kv = KvStore(settings.index / "other", "kv", limit=1.5 * size)
    async with local_side(Loaded(settings, draft_model, library, heard)) as side:
        await heard.line()
        assert len(library.kv.stored()) == 1
        await answer_of(side)
    assert len(heard.lines) == 1
    assert "--kv-cache" in heard.lines[0]
    assert 0 <= library.kv.room() < size


def test_in_a_full_store_a_new_file_replaces_read_ones(
    settings: SideSettings, draft_model: LanguageModel
) -> None:
    for age, name in enumerate(NOTES):
        os.utime(settings.documents[0] / name, (10**9 - age,) * 2)
    library = library_of(settings, draft_model)
    prefill(library)
    first, *files = library.kv.directory.iterdir()
    for path in files:  # the first one was read long before
        os.utime(path, (2 * 10**9,) * 2)
    os.utime(first, (10**9 + 100,) * 2)
    kv, room = library.kv.directory, library.kv.taken()
    library.kv = KvStore(kv.parent.parent, kv.name, room)
    new = settings.documents[0] / "tram.txt"
    new.write_text("The tram is green.")
    for written_s, stays in ((10**9 + 50, True), (10**9 + 200, False)):
        os.utime(new, (written_s,) * 2)
        complete_library(settings, draft_model, kv=False)
        library.retriever = library.newest()
        prefill(library)
        assert first.exists() == stays
        assert library.kv.taken() <= room
        new.write_text("The tram is blue.")
    assert len(library.kv.stored()) == len(NOTES)


async def test_idle_time_goes_to_new_documents_too(
    settings: SideSettings, draft_model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, heard = library_of(settings, draft_model), Heard()
    prefill(library)
    wait = written(monkeypatch, 1)
    async with local_side(Loaded(replace(settings, watch=True), draft_model, library, heard)):
        (settings.documents[0] / "tram.txt").write_text("The tram is green.")
        await wait()
    assert len(library.kv.stored()) == len(NOTES) + 1


async def test_a_late_side_reads_the_question_with_its_first_forward(
    settings: SideSettings, draft_model: LanguageModel
) -> None:
    library = library_of(settings, draft_model)
    prefill(library)
    async with local_side(Loaded(settings, draft_model, library)) as side:
        forwards: list[int] = []
        side.thread.on_forward = forwards.append
        prompt_first = await answer_of(side)
        assert len(forwards) == 1
        prepared = await side.prepare(QUESTION, verifies=True, late=True)
        assert len(forwards) == 1
        prepared.context.close()
        assert await answer_of(side, late=True) == prompt_first
        assert len(forwards) == 2
