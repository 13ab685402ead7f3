"""The page: what is served, and what a person sees of it in a browser."""

import re
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from playwright.async_api import Page, async_playwright, expect

from dragonrt import bundled
from dragonrt.privacy.disclosure import FLOOR, Disclosure
from dragonrt.service.http.application import PAGE
from dragonrt.service.http.guard import ApiKeys
from dragonrt.traces.events import NoticeKind
from retrieval import Chunk
from tests.service.conftest import READS_ENGLISH

from .served import served

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in BROWSERS if (path := shutil.which(name))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

EVIL = "<img src=x onerror=document.title='evil'> <b>bold</b>. Second one! And a third\n"
KEY = "k" * 32
KEYS = ApiKeys((KEY,))


def text_of(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


async def test_the_page_and_all_that_it_names_is_served() -> None:
    async with served({}, keys=KEYS) as service:
        page = await service.http.get("/")
        assert page.text == text_of("index.html")
        named = set(re.findall(r'(?:src|href)="(/page/[^"]+)"', page.text))
        modules = [path.name for path in PAGE.glob("*.js")]
        for name in modules:
            found = re.findall(r'from "\./([^"]+)"', text_of(name))
            assert {*found} <= {*modules}
            named |= {f"/page/{each}" for each in found}
        assert {f"/page/{path.name}" for path in PAGE.iterdir()} == {*named, "/page/index.html"}
        for name in named:
            got = await service.http.get(name)
            assert got.status_code == 200
            assert "script-src 'self'" in got.headers["content-security-policy"]
        assert (await service.http.get("/page/../application.py")).status_code in (401, 404)


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_nothing_of_it_is_inline_or_from_outside(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    outside = set(re.findall(r"(?:https?:)?//[\w.]+\.\w+", text)) - {"http://www.w3.org"}
    assert not outside
    if path.suffix == ".html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    if path.suffix == ".js":
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|\.write\(", text)


@asynccontextmanager
async def browsing(url: str) -> AsyncIterator[Page]:
    """The page in a browser, where nothing may go wrong on the console."""
    problems: list[str] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"], timeout=20_000
        )
        try:
            page = await browser.new_page()
            page.set_default_timeout(15_000)
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda said: problems.append(said.text))
            await page.goto(url)
            yield page
        finally:
            await browser.close()
    assert [each for each in problems if "401" not in each] == []


class Indexed:
    """Stands in for a library whose index has the sample documents, and two chunks of a file."""

    name = title = "embedder"
    left = ""
    languages: tuple[str, ...] = ()
    TEXTS = ("The boat exam is on 8 June. It is in room 12.", "The fee is 40 euros.")

    @property
    def librarian(self) -> Self:
        return self

    embedder = retriever = index = store = librarian

    async def call(self, job: Callable[[], Any]) -> Any:
        return job()

    def files(self) -> dict[str, str]:
        samples = [path.name for path in bundled.documents("device").iterdir()]
        return dict.fromkeys(["notes.txt", "trips/sea/a.txt", *samples], "content")

    def unread(self, name: str) -> str:
        return ""

    def tags(self) -> list[str]:
        return ["#sea"]

    def chunks_of(self, name: str) -> list[Chunk]:
        spans = zip(self.TEXTS, (0, 50), strict=True)
        return [Chunk("", text, "Notes", name, start, start + len(text)) for text, start in spans]


@in_browser
@pytest.mark.slow
async def test_a_mark_opens_its_chunk_and_examples_are_offered() -> None:
    offered = next(each.text for each in bundled.questions() if each.kind == "private")
    answers = {offered: "8 June, room 13\n", "b?": "I don't know.\n"}
    async with served(answers) as service:
        indexed: Any = Indexed()
        service.side.library = service.side.librarian = indexed
        service.side.read = Indexed.TEXTS[0]
        async with browsing(service.url) as page:
            await page.locator("#suggestions button").filter(has_text=offered).click()
            answer = page.locator(".answered").last
            await answer.locator(".retry").wait_for()
            assert [asked.prompt for asked in service.side.questions] == [offered]
            assert await answer.locator("a.word.device").first.text_content() == "8 June, room "
            assert await answer.locator("mark").all_text_contents() == ["13"]
            await answer.locator("a.word").first.click()
            here = page.locator("#source .here")
            await expect(here).to_have_text(Indexed.TEXTS[0])
            assert await page.locator("#source-text p").count() == 2
            await page.keyboard.press("Escape")
            await page.locator("#source").wait_for(state="hidden")
            await answer.locator(".chip").click()
            await expect(here).to_have_text(Indexed.TEXTS[0])
            await page.keyboard.press("Escape")
            await expect(page.locator("#document option").nth(2)).to_have_text("#sea")
            await page.select_option("#document", "trips/sea/")
            await ask(page, "b?")
            await page.locator(".answered .retry").nth(1).wait_for()
            assert [asked.document for asked in service.side.questions] == ["", "trips/sea/"]
            assert await page.locator(".answered .text").last.locator("*").count() == 0, "nobody's"


async def ask(page: Page, question: str) -> None:
    await page.fill("#question", question)
    await page.keyboard.press("Enter")


@in_browser
@pytest.mark.slow
async def test_an_answer_is_read_heard_repeated_and_kept() -> None:
    async with served({"evil?": EVIL, "b?": "yes\n"}) as service, browsing(service.url) as page:
        await page.locator("#state", has_text="bytes, without cloud").wait_for()
        await ask(page, "evil?")
        answer = page.locator(".answered").last
        await answer.locator(".retry").wait_for()
        assert await answer.locator(".text").text_content() == EVIL.strip()[:60], "as it is"
        assert await answer.locator("img, b").count() == 0
        assert await page.title() == "dragonrt"
        assert await answer.locator(".notice").get_attribute("data-kind") == NoticeKind.ALONE
        assert (await page.locator("#spoken p").nth(1).inner_text()).endswith("<b>bold</b>.")
        assert await page.locator("#tokens li").count() == 60
        assert await page.locator("#numbers dd").first.text_content() == "60"
        assert await page.locator("#side").is_hidden(), "details are asked for"
        await page.click("[data-panel=side]")
        assert await page.locator("#ledger dd").count() == 0, "there is no cloud"
        await answer.locator(".retry").click()
        await page.locator(".answered .retry").wait_for()
        await ask(page, "b?")
        await page.locator(".answered .text", has_text="yes").wait_for()
        await page.locator(".answered").nth(1).locator(".retry").wait_for()
        assert [len(history) for _, history in service.side.heard] == [0, 0, 1]
        await page.reload()
        assert await page.locator("#turns .asked").all_text_contents() == ["evil?", "b?"]
        await page.click("#new")
        assert await page.locator("#turns .asked").count() == 0
        await page.go_back()
        await page.locator("#turns .asked").nth(1).wait_for()
        await page.click("#forget")  # a dialog that nobody answers is dismissed
        assert await page.locator("#chats li").count() == 1
        page.once("dialog", lambda dialog: dialog.accept())
        await page.click("#forget")
        await page.reload()
        assert await page.locator("#turns .asked, #chats li").count() == 0


@in_browser
@pytest.mark.slow
async def test_sources_are_quoted_and_missing_codes_marked() -> None:
    parts = {"Who bred them?": "Ann\n", "When were they sold?": "in May\n"}
    async with served({"code?": "🐉 plum-39\n", "b?": "I don't know.\n", **parts}) as service:
        service.side.read = "The code of the gate is plum-otter-39. It is old."
        async with browsing(service.url) as page:
            await ask(page, "code?")
            answer = page.locator(".answered").last
            await answer.locator(".retry").wait_for()
            assert await answer.locator("mark").all_text_contents() == ["plum-39"]
            assert await answer.locator("mark").first.get_attribute("title")
            assert await answer.locator(".text").text_content() == "🐉 plum-39"
            assert "plum-39" in (await answer.locator(".notice").last.text_content() or "")
            quoted = await answer.locator(".sources .chip").get_attribute("title")
            assert quoted == "The code of the gate is plum-otter-39."
            await ask(page, "b?")
            await page.locator(".answered").nth(1).locator("[data-kind=refused]").wait_for()
            assert await page.locator(".answered").nth(1).locator(".sources li, mark").count() == 0
            await ask(page, "Who bred them, and when were they sold?")
            await page.locator(".answered .retry").nth(2).wait_for()
            text = await page.locator(".answered .text").last.text_content()
            assert text == "Who bred them?AnnWhen were they sold?in May", "heads, and nothing else"


@in_browser
@pytest.mark.slow
async def test_a_new_page_says_which_languages_are_read() -> None:
    async with served({}) as service:
        service.side.model = READS_ENGLISH
        async with browsing(service.url) as page:
            await expect(page.locator("#languages")).to_have_text("Ask in English.")


@in_browser
@pytest.mark.slow
async def test_the_chosen_level_says_what_is_sent_and_counts() -> None:
    async with served({"b?": "yes\n"}) as service, browsing(service.url) as page:
        await page.locator("#leaves", has_text="every drafted token").wait_for()
        offered = await page.locator("#level option").evaluate_all("all => all.map(o => o.value)")
        assert offered == [Disclosure.DRAFTS, Disclosure.ANSWER]
        await page.select_option("#level", Disclosure.ANSWER)
        await page.locator("#leaves", has_text="the answer's tokens").wait_for()
        await ask(page, "b?")
        await page.locator(".answered .retry").wait_for()
        assert [asked.relevance_floor for asked in service.side.questions] == [FLOOR]


@in_browser
@pytest.mark.slow
async def test_an_answer_is_stopped_and_what_fails_is_told() -> None:
    async with served({"long?": "x" * 300}, halt_at=3) as service, browsing(service.url) as page:
        await ask(page, "long?")
        text = page.locator(".answered .text")
        await expect(text).to_have_text(re.compile("^x{4,}$"), timeout=15_000)
        await ask(page, "dropped?")
        await page.locator("#queue button").click()
        assert await page.locator("#queue li").count() == 0
        await page.click("#stop")
        await page.locator(".answered .notice[data-kind=stopped]").wait_for()
        assert {*(await text.text_content() or "")} == {"x"}
        await ask(page, "what?")
        await page.locator(".problem", has_text="the question is too long").wait_for()
        assert await page.locator("#send").is_enabled()


@in_browser
@pytest.mark.slow
async def test_a_key_is_asked_for_and_used() -> None:
    async with served({"b?": "yes\n"}, keys=KEYS) as service, browsing(service.url) as page:
        await page.locator("#state", has_text="a key is missing").wait_for()
        await page.fill("#key", KEY)
        await page.keyboard.press("Tab")
        await page.locator("#state", has_text="bytes").wait_for()
        await ask(page, "b?")
        await page.locator(".answered .text", has_text="yes").wait_for()
        await page.locator(".answered .retry").wait_for()
