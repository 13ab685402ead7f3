"""What mkdocs needs beside the pages: README as the first one, files outside of docs/, pictures.

The pages are written for a reader of the repository. Here their links to what is outside of docs/
lead to copies in the site, and a picture in light and dark follows the theme's switch.
"""

import re
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<=\]\()([^)\s:#]+)(#[^)\s]*)?(?=\))")
PICTURE = re.compile(
    r'<picture><source [^>]*srcset="([^"]+)"><img src="([^"]+)" alt="([^"]*)"[^>]*></picture>'
)
CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
FROM_CODE = """# Python, from the code

What `import dragonrt` gives; how it is used is in [api.md](api.md).

::: dragonrt.api

::: dragonrt.errors.DragonError
"""


def on_config(config: Any) -> Any:
    """Add the pages of results to the navigation, and scale.md."""
    named = sorted(path.name for path in (DOCS / "results").glob("*.md"))
    named.remove("index.md")
    for part in config["nav"]:
        if "Results" in part:
            part["Results"] = [
                "results/index.md",
                "split-qa.md",
                *(f"results/{name}" for name in named),
            ]
        if "Reference" in part and (DOCS / "scale.md").exists():
            part["Reference"].insert(3, "scale.md")
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add README, the page of docstrings, and what pages link to outside of docs/."""
    readme = (ROOT / "README.md").read_text("utf-8")
    made = {"index.md": readme, "python.md": FROM_CODE}
    found = {uri: _read(ROOT / uri) for uri in _outside(readme, "README.md")}
    for path in DOCS.rglob("*.md"):
        where = f"docs/{path.relative_to(DOCS).as_posix()}"
        for uri in _outside(path.read_text("utf-8"), where):
            found[uri] = _read(ROOT / uri)
    found.pop("README.md", None)
    for uri, content in (found | made).items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links and pictures of one page."""
    uri = page.file.src_uri
    where = "README.md" if uri == "index.md" else uri
    inside = (DOCS / uri).exists() or uri == "python.md"
    source = f"docs/{where}" if inside else where

    def link(found: re.Match[str]) -> str:
        target = normpath(f"{dirname(source)}/{found[1]}".lstrip("/"))
        anchor = found[2] or ""
        if target == "README.md":
            target = "index.md"
        elif target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif (ROOT / target).is_dir():
            return str(uri.rpartition("/")[2])  # a folder has no page
        return f"{relpath(target, dirname(uri) or '.')}{anchor}"

    def picture(found: re.Match[str]) -> str:
        dark, light, name = found.groups()
        return f"![{name}]({light}#only-light)\n![{name}]({dark}#only-dark)"

    parts = CODE.split(markdown)
    # Every second part is code.
    parts[::2] = [LINK.sub(link, PICTURE.sub(picture, part)) for part in parts[::2]]
    return "".join(parts)


def _outside(text: str, where: str) -> list[str]:
    """Return the files outside of docs/ that a page links to."""
    targets = [found[1] for found in LINK.finditer(CODE.sub("", text))]
    paths = [normpath(f"{dirname(where)}/{each}".lstrip("/")) for each in targets]
    return [each for each in paths if not each.startswith("docs") and (ROOT / each).is_file()]


def _read(path: Path) -> str:
    return path.read_text("utf-8")
