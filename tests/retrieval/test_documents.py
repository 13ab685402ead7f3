import sys
from pathlib import Path

import pytest

from retrieval import DocumentError
from retrieval.documents import load

from .conftest import pdf_with


def written(tmp_path: Path, name: str, data: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.txt", b"\x00\x01\x02"),
        ("a.txt", bytes(range(8)) * 4 + bytes(40)),
        ("a.txt", b" \n "),
        ("a.eml", b""),
        ("a.mbox", b"\x00\xff"),
        ("a.pdf", pdf_with("", "Scan")),
        ("a.png", b"\x89PNG"),
        ("gone.txt", None),
    ],
)
def test_what_cannot_be_read_has_a_reason(tmp_path: Path, name: str, data: bytes | None) -> None:
    with pytest.raises(DocumentError) as caught:
        load(tmp_path / name if data is None else written(tmp_path, name, data))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("suffix", "library"), [(".pdf", "pypdfium2"), (".pptx", "pptx")])
def test_a_missing_library_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DocumentError) as caught:
        load(written(tmp_path, f"a{suffix}", b"x"))
    assert "dragonrt[documents]" in str(caught.value)
