"""What is in a file, or is no file, costs the process that indexes neither time, memory nor life.

Real files that take everything, in the process that reads them, with its own limits.
"""

import os
import select
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retrieval import DocumentError, Embedder, Index, RetrievalError
from retrieval import reader as reading
from retrieval.reader import MEMORY, Reader

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the limits are the system's")

LARGEST = 5e6
READ_ONE = f"""
import resource, sys
from pathlib import Path
from retrieval import DocumentError
from retrieval.reader import Reader
path = Path(sys.argv[1])
with Reader(largest={LARGEST}) as confined:
    try:
        confined.read(path, path.stat().st_size)
    except DocumentError as error:
        print(error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def read(path: Path, largest: float = LARGEST) -> list[str]:
    with Reader(largest=largest) as confined:
        _, pieces, *_ = confined.read(path, path.stat().st_size)
    assert pieces is not None
    return [text for text, *_ in pieces]


def packed(path: Path, member: str, begin: bytes, unit: bytes, times: int, rest: object) -> None:
    """A ZIP file of whose members one is a mebibyte or so, many times."""
    block = unit * (2**20 // len(unit))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in dict(rest).items():  # type: ignore[call-overload]
            archive.writestr(name, content)
        with archive.open(member, "w", force_zip64=True) as file:
            file.write(begin)
            for _ in range(times):
                file.write(block)


def word_file(path: Path) -> None:
    begin = b'<w:document xmlns:w="w"><w:body>'
    packed(path, "word/document.xml", begin, b"<w:p><w:r><w:t>hello</w:t></w:r></w:p>", 700, {})


def book(path: Path) -> None:
    packed(path, "META-INF/container.xml", b"<container>", b"<a/>", 700, {})


@pytest.mark.slow
@pytest.mark.parametrize(("name", "write"), [("a.docx", word_file), ("a.epub", book)])
def test_what_unpacks_to_gigabytes_is_skipped_within_a_gibibyte(
    tmp_path: Path, name: str, write: object
) -> None:
    write(tmp_path / name)  # type: ignore[operator]
    assert (tmp_path / name).stat().st_size < LARGEST
    # In a process of its own: the largest child counts, and this one has had others.
    command = (sys.executable, "-c", READ_ONE, str(tmp_path / name))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reason, most = done.stdout.splitlines()
    assert reason
    assert int(most) * 1024 < 1.1 * MEMORY


@pytest.mark.slow
@pytest.mark.parametrize("data", [b"<div>" * 900_000 + b"x", b"<table><tr><td>" * 300_000 + b"x"])
def test_deep_pages_end(tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SECONDS", 2.0)
    monkeypatch.setattr(reading, "SECONDS_PER_MB", 0.0)
    (tmp_path / "a.html").write_bytes(data)
    try:
        assert read(tmp_path / "a.html") == ["x"]
    except DocumentError as error:
        assert "\n" not in str(error)  # noqa: PT017 (either is right)


@pytest.mark.slow
def test_a_reader_that_is_ended_by_a_file_reads_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, good = tmp_path / "slow.md", tmp_path / "good.txt"
    slow.write_bytes(b"*a_ " * 2_000_000)
    good.write_text("The ferry leaves at nine.")
    monkeypatch.setattr(reading, "SECONDS", 2.0)
    monkeypatch.setattr(reading, "SECONDS_PER_MB", 0.0)
    with Reader() as confined:
        for _ in range(2):
            with pytest.raises(DocumentError):
                confined.read(slow, 0)
            _, pieces, *_ = confined.read(good, 0)
            assert pieces is not None
            assert [text for text, *_ in pieces] == ["The ferry leaves at nine."]


def test_what_holds_more_text_than_a_file_may_is_skipped(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.epub", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfile '
            'full-path="a.opf"/></container>',
        )
        archive.writestr(
            "a.opf",
            '<package xmlns="http://www.idpf.org/2007/opf"><item id="a" href="a.html"/>'
            '<itemref idref="a"/></package>',
        )
        archive.writestr("a.html", "<p>" + "ferry " * 20_000)
    assert sum(text.count("ferry") for text in read(tmp_path / "a.epub", 2e5)) == 20_000
    with pytest.raises(DocumentError):
        read(tmp_path / "a.epub", 1e5)


def test_only_regular_files_are_read_and_the_rest_has_a_reason(
    tmp_path: Path, embedder: Embedder
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "ferry.txt").write_text("The ferry leaves at nine.")
    os.mkfifo(documents / "pipe.txt")
    (documents / "endless.txt").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(documents / "socket.txt"))
        report = Index.update(tmp_path / "index", documents, embedder)
        skipped = [name for name, _ in report.skipped]
        assert skipped == ["endless.txt", "pipe.txt", "socket.txt"]
        assert report.chunks == 1
    # A file may become a pipe after it was looked at.
    with Reader() as confined, pytest.raises(DocumentError):
        confined.read(documents / "pipe.txt", 1)


def test_links_out_of_the_documents_are_skipped_unless_named(
    tmp_path: Path, embedder: Embedder
) -> None:
    documents, outside = tmp_path / "documents", tmp_path / "documents of others"
    for folder in (documents / "below", outside / "deeper"):
        folder.mkdir(parents=True)
    (documents / "ferry.txt").write_text("The ferry leaves at nine.")
    (outside / "bus.txt").write_text("The bus is yellow.")
    (outside / "deeper" / "tram.txt").write_text("The tram is red.")
    for name in ("below/within.txt", "again.txt"):  # one document
        (documents / name).symlink_to(documents / "ferry.txt")
    (documents / "bus.txt").symlink_to(outside / "bus.txt")
    (documents / "out").symlink_to(outside)
    (documents / "circle").symlink_to(documents)
    (documents / "itself.txt").symlink_to("itself.txt")
    (documents / "nothing.txt").symlink_to("gone.txt")
    (outside / "back").symlink_to(documents)
    (outside / "again").symlink_to(outside)

    def indexed(*named: Path) -> tuple[set[str], set[str]]:
        where = tmp_path / "index"
        report = Index.update(where, named, embedder)
        return set(Index.open(where).files()), {name for name, _ in report.skipped}

    broken = {"itself.txt", "nothing.txt"}
    assert indexed(documents) == ({"ferry.txt"}, {"bus.txt", "out", *broken})
    assert indexed(documents / "bus.txt")[0] == {"bus.txt"}, "it is named"
    assert indexed(documents / "out")[0] == {"bus.txt", "deeper/tram.txt"}, "it is named"


def test_a_directory_that_cannot_be_read_is_named(
    tmp_path: Path, documents: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def refused(path: Path | str = ".") -> object:
        if str(path).endswith("travel"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    report = Index.update(tmp_path / "index", documents, embedder)
    assert report.skipped == (("travel/", "cannot be read: Permission denied"),)


@contextmanager
def indexing(documents: Path, index: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A process that indexes, and says the number of the one that reads once it does."""
    program = (
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from retrieval import Embedder, Index\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's `&` ignores it
        "try:\n"
        "    Index.update(Path(sys.argv[2]), Path(sys.argv[1]), Embedder.load())\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(documents), str(index)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def reading_process(parent: int) -> int:
    """The child of a process, once it is in the middle of a file: its input is watched then."""
    children = Path(f"/proc/{parent}/task/{parent}/children")
    while True:
        for child in children.read_text().split():
            with Path(f"/proc/{child}/fdinfo/0").open() as about:
                flags = next(line for line in about if line.startswith("flags:"))
            if int(flags.split()[1], 8) & os.O_ASYNC:
                return int(child)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fdinfo").exists(), reason="Linux tells the flags")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_ended_while_reading_leaves_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.html").write_bytes(b"<div>" * 900_000 + b"x")
    with indexing(documents, tmp_path / "index") as process:
        child = os.pidfd_open(reading_process(process.pid))
        process.send_signal(number)
        assert process.wait(20) == (130 if number == signal.SIGINT else -number)
        ended, _, _ = select.select([child], [], [], 20)
        os.close(child)
    assert ended, "it reads on"


def test_it_has_no_secrets_and_no_large_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGONRT_STORE", "postgresql://me:password@host/base")
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = set(children.read_text().split())
    with Reader() as confined:
        confined.read(Path(__file__).with_name("documents") / "stock_openpyxl.xlsx", 0)
        (child,) = set(children.read_text().split()) - before
        assert b"password" not in Path(f"/proc/{child}/environ").read_bytes()
        maps = Path(f"/proc/{child}/maps").read_text()
        assert not any(name in maps for name in ("torch", "faiss", "numpy"))


def test_a_reader_that_does_not_start_is_no_fault_of_the_files(
    tmp_path: Path, documents: Path, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "index"
    Index.update(where, documents, embedder)
    (documents / "bus.txt").write_text("The bus is yellow.")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RetrievalError):
        Index.update(where, documents, embedder)
    assert len(Index.open(where)) == 4
