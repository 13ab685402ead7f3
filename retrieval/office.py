"""Readers of office documents and books; libraries are imported at first use.

Each takes a file's content, and returns its text with the marks of `layout`, and its title.
"""

import posixpath
import re
import zipfile
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

from .layout import HEADING, heading, page, table
from .plain import decoded, markdown_text, marked_text


def read_pdf(data: bytes) -> tuple[str, str]:
    """Read a PDF page by page."""
    import pypdfium2

    with pypdfium2.PdfDocument(data) as pdf:
        pages = []
        for index in range(len(pdf)):
            opened = pdf[index]
            pages.append(opened.get_textpage().get_text_range())
            opened.close()
        title = str(pdf.get_metadata_dict().get("Title", ""))
    # PDFium marks a hyphen that only divides a word at a line's end.
    return "".join(page(re.sub("[\x02\ufffe](?:\r?\n)?", "", text)) for text in pages), title


def read_docx(data: bytes) -> tuple[str, str]:
    """Read a Word document: paragraphs, headings by their styles, and tables."""
    import docx
    from docx.table import Table

    document = docx.Document(BytesIO(data))
    blocks = []
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            blocks.append(table([cell.text for cell in row.cells] for row in block.rows))
            continue
        level = _level(block.style)
        blocks.append(heading(block.text, level) if level else block.text)
    return _paragraphs(blocks), document.core_properties.title or ""


def _level(style: Any) -> int:
    """Return the heading level of a style or one that it is based on; 0 if it is no heading."""
    while style is not None:
        if named := re.fullmatch(r"Title|Heading (\d)", style.name or ""):
            return int(named[1] or 1)
        style = style.base_style
    return 0


def read_odt(data: bytes) -> tuple[str, str]:
    """Read an OpenDocument text."""
    import odfdo

    document = odfdo.Document(BytesIO(data))
    return markdown_text(str(document.to_markdown())), document.meta.title or ""


def read_pptx(data: bytes) -> tuple[str, str]:
    """Read a presentation: a page for each slide, with its title, tables and notes."""
    import pptx

    presentation = pptx.Presentation(BytesIO(data))
    slides = [page(_paragraphs(_slide(slide))) for slide in presentation.slides]
    return "".join(slides), presentation.core_properties.title or ""


def _slide(slide: Any) -> Iterator[str]:
    title = slide.shapes.title
    if title is not None and title.has_text_frame:
        yield heading(title.text_frame.text)
    for shape in slide.shapes:
        if shape.has_text_frame and shape != title:
            yield shape.text_frame.text
        elif shape.has_table:
            yield table([cell.text for cell in row.cells] for row in shape.table.rows)
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        yield slide.notes_slide.notes_text_frame.text


def read_xlsx(data: bytes) -> tuple[str, str]:
    """Read a workbook: a table for each sheet, under its name."""
    import python_calamine

    workbook = python_calamine.CalamineWorkbook.from_filelike(BytesIO(data))
    sheets = [(name, workbook.get_sheet_by_name(name).to_python()) for name in workbook.sheet_names]
    return "".join(heading(n) + table(map(_cells, rows)) for n, rows in sheets if rows), ""


def _cells(row: list[Any]) -> list[Any]:
    """Return whole numbers as integers: a sheet stores all of them as floating point."""
    return [int(c) if isinstance(c, float) and c.is_integer() else c for c in row]


def read_epub(data: bytes) -> tuple[str, str]:
    """Read a book: the pages of its spine in order (EPUB 3.3, sections 4.2 and 5).

    A page without a heading gets its title as one, unless it continues the page before.
    """
    with zipfile.ZipFile(BytesIO(data)) as book:
        container = ElementTree.fromstring(book.read("META-INF/container.xml"))
        name = _named(container, "rootfile")[0].attrib["full-path"]
        package = ElementTree.fromstring(book.read(name))
        files = {e.attrib["id"]: unquote(e.attrib["href"]) for e in _named(package, "item")}
        folder = posixpath.dirname(name)
        pages = [
            decoded(book.read(posixpath.join(folder, files[e.attrib["idref"]])))
            for e in _named(package, "itemref")
        ]
    title = next((e.text or "" for e in _named(package, "title")), "")
    blocks, above = [], title
    for text, name in map(marked_text, pages):
        blocks.append(
            heading(name) + text if name not in ("", above) and HEADING not in text else text
        )
        above = name
    return _paragraphs(blocks), title


def _named(tree: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in tree.iter() if element.tag.endswith(f"}}{name}")]


def _paragraphs(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block.strip())
