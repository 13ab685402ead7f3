"""Read PDF files by PDFium: pieces of text at their places, put in the order people read."""

from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_double, c_ushort, cast, create_string_buffer
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot
from typing import Any

from .blocks import Block, Page, Paragraph, Table, Title, Unread

_NOTES = 1, 3, 9, 10, 11, 12  # kinds of annotations with texts of people
_WIDGET, _BOXES = 20, (2, 3)  # fields of a form, and those to be ticked
_GAP = 0.9  # of the size of the font: more divides columns
_PROSE = 3.5  # words of a line of a column, from which it is no cell of a table


@dataclass(slots=True)
class _Run:
    """Characters on a line without a gap; `size` is of their font."""

    text: str
    left: float
    right: float
    base: float
    size: float
    raised: bool = False


def read_pdf(data: bytes) -> Iterator[Block]:
    """Yield a PDF's blocks by page: text (column by column), tables, values of forms, and notes."""
    import pypdfium2

    with pypdfium2.PdfDocument(data) as pdf:
        yield Title(str(pdf.get_metadata_dict().get("Title", "")))
        pdf.init_forms()
        form = pdf.formenv and pdf.formenv.raw
        for index in range(len(pdf)):
            page = pdf[index]
            text_page, notes = page.get_textpage(), list[Block]()
            back = (-1j) ** (page.get_rotation() // 90)  # turns places as a viewer turns the page
            runs = _runs(text_page, back)
            if sum(len(run.text) for run in runs) < 2 * len(runs):  # it is turned, or has no lines
                notes, runs = [Paragraph(text_page.get_text_range())], []
            for kind, text, box in _annotations(page, form):
                if kind == _WIDGET:
                    left, right = sorted((corner * back).real for corner in box)
                    low, high = sorted((corner * back).imag for corner in box)
                    beside = (run.base for run in runs if low <= run.base <= high)
                    runs.append(_Run(text, left, right, next(beside, low), 10))
                else:
                    notes.append(Paragraph(f"Note: {text}"))
            found = [*_blocks(_rows(runs)), *notes]
            yield from [Page(), *(found or [Unread("page without text")])]
            page.close()


def _runs(page: Any, back: complex) -> list[_Run]:
    """Return runs of a page's characters, in the order that they are drawn."""
    import pypdfium2.raw as raw

    runs = list[_Run]()
    x, y, box, matrix = c_double(), c_double(), [c_double() for _ in range(4)], raw.FS_MATRIX()
    for index in range(page.count_chars()):
        code = raw.FPDFText_GetUnicode(page, index)
        if code in (2, 0xFFFE):  # a hyphen that only divides a word
            code = 0xAD
        if code < 32 or raw.FPDFText_IsGenerated(page, index) == 1:
            continue
        raw.FPDFText_GetCharOrigin(page, index, byref(x), byref(y))
        raw.FPDFText_GetCharBox(page, index, *map(byref, box))
        raw.FPDFText_GetMatrix(page, index, byref(matrix))
        size = raw.FPDFText_GetFontSize(page, index) * hypot(matrix.c, matrix.d) or 1.0
        left, right, low, high = (each.value for each in box)
        at = complex(x.value, y.value) * back
        end = max(at.real, (complex(left, low) * back).real, (complex(right, high) * back).real)
        new = _Run(chr(code), at.real, end, at.imag, size)
        if not runs or not _joined(runs[-1], new):
            runs.append(new)
    return runs


def _joined(run: _Run, new: _Run) -> bool:
    """Add characters to the run before them, if they follow it closely; raised ones as such."""
    gap, up = (new.left - run.right) / run.size, (new.base - run.base) / run.size
    if not -1 < gap < _GAP or not -0.1 < up < 0.8 or (up > 0.1 and new.size > 0.85 * run.size):
        return False
    if up > 0.1:
        run.text += new.text if run.raised or not run.text[-1:].isalnum() else f"^{new.text}"
        run.raised = True
    else:
        apart = gap > 0.25 or (run.raised and new.text[0].isalnum())
        run.text += " " * (apart and run.text[-1:] != " ") + new.text
        run.raised = False
    run.right = new.right
    return True


def _rows(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Return runs line by line, from left to right."""
    rows = list[list[_Run]]()
    for run in sorted(runs, key=lambda run: -run.base):
        if rows and rows[-1][0].base - run.base < 0.4 * run.size:
            rows[-1].append(run)
        else:
            rows.append([run])
    for row in rows:
        row.sort(key=lambda run: run.left)
        for number in reversed(range(1, len(row))):
            before, run = row[number - 1 : number + 1]
            if run.left - before.right < _GAP * run.size and _joined(
                before, replace(run, base=before.base)
            ):
                del row[number]
    return rows


def _blocks(rows: list[list[_Run]]) -> Iterator[Block]:
    """Yield the paragraphs, columns and tables of lines."""
    lines = list[_Run]()
    while rows:
        columns = list[tuple[float, float]]()
        for end, row in enumerate(rows):
            last = rows[max(0, end - 3) : end + 1]
            merged = _merged([*columns, *((run.left, run.right) for run in row)], row[0].size)
            if end and (
                rows[end - 1][0].base - row[0].base > 4 * row[0].size
                or len(merged) < max(2, len(columns))
                or (end == 1 and len(rows[0]) < len(row))
                or any(sum(a <= run.left < b for run in r) > 1 for r in last for a, b in merged)
            ):
                break
            columns = merged
        else:
            end = len(rows)
        region, rows = rows[:end], rows[end:]
        if len(columns) < 2 or len(region) < 2:
            for row in region:
                text = " ".join(run.text for run in row)
                lines.append(replace(row[0], text=text, right=row[-1].right))
            continue
        yield from _paragraphs(lines)
        lines = []
        cells = [[[r for r in row if a <= r.left < b] for row in region] for a, b in columns]
        if all(_is_prose(column) for column in cells):
            for column in cells:
                yield from _blocks([row for row in column if row])
        else:
            texts = (
                [" ".join(r.text for r in cell).strip() for cell in row]
                for row in zip(*cells, strict=True)
            )
            yield Table(tuple(map(tuple, texts)))
    yield from _paragraphs(lines)


def _merged(spans: list[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Return the intervals that spans cover, with gaps between them."""
    found = list[tuple[float, float]]()
    for left, right in sorted(spans):
        if found and left < found[-1][1] + _GAP * gap:
            found[-1] = found[-1][0], max(right, found[-1][1])
        else:
            found.append((left, right))
    return found


def _is_prose(column: list[list[_Run]]) -> bool:
    counts = [len(run.text.split()) for row in column for run in row]
    return len(counts) > 1 and sum(counts) / len(counts) >= _PROSE


def _paragraphs(lines: list[_Run]) -> Iterator[Block]:
    """Yield paragraphs of lines; a line that ends early is a line of its own."""
    text, widest = "", max((line.right for line in lines), default=0.0)
    for before, line in pairwise([None, *lines]):
        assert line is not None
        if before is not None:
            if before.base - line.base > 1.8 * line.size:
                yield Paragraph(text)
                text = ""
            elif text.endswith("\xad"):
                text = text[:-1]
            else:
                text += " " if before.right > 0.75 * widest else "\n"
        text += line.text.strip()
    if text:
        yield Paragraph(text)


def _annotations(page: Any, form: Any) -> Iterator[tuple[int, str, Sequence[complex]]]:
    """Yield the kind, the text and the box of each note and each filled field of a page."""
    import pypdfium2.raw as raw

    for index in range(raw.FPDFPage_GetAnnotCount(page)):
        annotation = raw.FPDFPage_GetAnnot(page, index)
        kind, box = raw.FPDFAnnot_GetSubtype(annotation), raw.FS_RECTF()
        raw.FPDFAnnot_GetRect(annotation, byref(box))
        if kind == _WIDGET and form is not None:
            text = _string(raw.FPDFAnnot_GetFormFieldValue, form, annotation)
            if raw.FPDFAnnot_GetFormFieldType(form, annotation) in _BOXES:
                text = "[x]" if raw.FPDFAnnot_IsChecked(form, annotation) else "[ ]"
        else:
            text = _string(raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
        raw.FPDFPage_CloseAnnot(annotation)
        if text.strip() and kind in (*_NOTES, _WIDGET):
            yield kind, text, (complex(box.left, box.bottom), complex(box.right, box.top))


def _string(function: Any, *arguments: Any) -> str:
    """Return the text that a function of PDFium writes into a buffer."""
    size = function(*arguments, None, 0)
    buffer = create_string_buffer(size)
    function(*arguments, cast(buffer, POINTER(c_ushort)), size)
    return buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace")
