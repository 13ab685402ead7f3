"""Clouds that lie to a real `dragonrt serve`: no canary of its documents reaches them.

Each note has a fact that is asked for, and a canary that is not. The clouds force the words before
the canary and then predict nothing, so the device goes on with its document. They leave in the
middle of answers; the service is restarted; and every conversation is sent back by another client.
"""

import asyncio
import importlib
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dragonrt.backends.model import LanguageModel
from dragonrt.distributions import codec
from dragonrt.modes import MODES
from dragonrt.modes import settings as shared
from dragonrt.modes.dragon import settings
from dragonrt.privacy.disclosure import Disclosure
from scripts.campaign.liar import lying_cloud
from scripts.campaign.soak import (
    LIMIT_S,
    MODEL,
    THINGS,
    asked_of,
    liar,
    serving,
    told,
    write_notes,
)

PAGE = Path(__file__).parents[2] / "docs" / "adding.md"
# Programs with more than dragonrt has.

CARELESS = '''
"""dragonrt with a mode that sends every token that it decides, and asks with all of them."""

from dataclasses import dataclass, replace
from typing import ClassVar

from dragonrt import cli
from dragonrt.modes.dragon import DragonMode
from dragonrt.modes.dragon.machine import Dragon
from dragonrt.modes.dragon.settings import DragonSettings, DragonSetup
from dragonrt.modes.messages import Target
from dragonrt.modes.mode import Effects, Joined, Received
from dragonrt.modes import MODES
from dragonrt.traces.events import TokenDecided
from dragonrt.wire.messages import Opened


class Careless(Dragon):
    opened, session = False, 0

    def disclosed(self, question):
        return replace(question, accepted=tuple(self.decided), shown=())

    def handle(self, happened, now):
        match happened:
            case Received(message=Target(prefix_hash=0)):
                return Effects()
            case Joined(session=session):
                self.opened, self.session = False, session
            case Received(message=Opened()):
                self.opened = self.side == "device"
        effects = super().handle(happened, now)
        for event in effects.events:
            if isinstance(event, TokenDecided) and self.opened:
                sent = Target(self.session, event.step, 0, event.token, "device")
                effects.send.append(("cloud", sent))
        return effects


@dataclass(frozen=True, slots=True, kw_only=True)
class CarelessSettings(DragonSettings):
    """Those of dragon."""

    mode: ClassVar[str] = "careless"


class CarelessMode(DragonMode):
    settings = CarelessSettings

    def device(self, *given):
        return Careless(DragonSetup("device", *given))

    def cloud(self, *given):
        return Careless(DragonSetup("cloud", *given))


MODES["careless"] = CarelessMode()
if __name__ == "__main__":
    cli.main()
'''
POWERS = '''
"""dragonrt with the codec of docs/adding.md."""

from page_codec import PowersOfTwo

from dragonrt import cli
from dragonrt.distributions import codec as usual
from dragonrt.modes import settings as shared
from dragonrt.modes.dragon import settings


def codec(name, vocabulary):
    if name.startswith("pow2:"):
        return PowersOfTwo(name, vocabulary, int(name.partition(":")[2]))
    return usual(name, vocabulary)


shared.codec = settings.codec = codec
if __name__ == "__main__":
    cli.main()
'''


PROGRAMS = {
    "as it is": ("dragonrt", ("--codec", "topk:64:residual")),
    "a careless mode": ("careless", ("--mode", "careless", "--codec", "dense:fp16")),
    "a codec from outside": ("powers", ("--codec", "pow2:65536")),
}
"""What is run in place of `dragonrt`, with its options."""


@pytest.fixture
def folder(own_data: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with notes and programs; nothing is known of what was told before."""
    write_notes(tmp_path / "notes")
    (tmp_path / "careless.py").write_text(CARELESS)
    (tmp_path / "powers.py").write_text(POWERS)
    (code,) = re.findall(r"^```python codec\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    (tmp_path / "page_codec.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.syspath_prepend(tmp_path)
    for module in (settings, shared):
        monkeypatch.setattr(module, "codec", codec)  # is put back
    before = dict(MODES)
    yield tmp_path
    MODES.clear()
    MODES.update(before)
    for name in ("careless", "powers", "page_codec"):
        sys.modules.pop(name, None)


Json = dict[str, Any]
Turn = tuple[str, str]
Client = Callable[[Sequence[Turn], str], tuple[str, Json]]


def chat(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The older API, as programs send a conversation back: with the sources as they were shown."""
    messages = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    return "/v1/chat/completions", {"messages": [*messages, {"role": "user", "content": question}]}


def responses(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The newer one, with parts of a type."""
    path, body = page(turns, question)
    for message in body["input"][1::2]:
        message["content"] = [{"type": "output_text", "text": message["content"]}]
    return path, {**body, "sources_in_text": True, "include": []}


def page(turns: Sequence[Turn], question: str) -> tuple[str, Json]:
    """The page, from the chats that it stored."""
    _, body = chat(turns, question)
    how = {"sources_in_text": False, "include": ["dragonrt.trace"]}
    return "/v1/responses", {"input": body["messages"], **how}


CLIENTS = (chat, responses, page)


def text_of(answer: Json) -> str:
    """What a client shows of an answer."""
    if "choices" in answer:
        return str(answer["choices"][0]["message"]["content"])
    return "".join(part["text"] for part in answer["output"][0]["content"])


async def ask(client: httpx2.AsyncClient, how: Client, turns: Sequence[Turn], question: str) -> str:
    path, body = how(turns, question)
    answer = await client.post(path, json={"model": MODEL, **body})
    assert answer.status_code == 200, answer.text
    return text_of(answer.json())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("level", "name"),
    [
        (Disclosure.DRAFTS, "as it is"),  # that canaries can be had is shown once
        *itertools.product((Disclosure.ANSWER, Disclosure.REDACTED), PROGRAMS),
    ],
)
async def test_no_canary_is_told(
    folder: Path, model: LanguageModel, level: Disclosure, name: str
) -> None:
    module, how = PROGRAMS[name]
    if module != "dragonrt":
        importlib.import_module(module)  # the cloud has it, too
    says = liar(model)
    talks: list[list[Turn]] = []
    async with lying_cloud(model, says) as cloud:
        async with serving(folder, cloud, level, *how, program=module) as service:
            for number, thing in enumerate(THINGS):
                async with asyncio.timeout(LIMIT_S):
                    await cloud.present.wait()  # one that left is dialled again
                cloud.leaves_after = len(says.begins) if number % 2 else None
                question = asked_of(thing)
                text = await ask(service.client, CLIENTS[number % 3], (), question)
                talks.append([(question, text)])
        said = [words in talk[0][1] for words, talk in zip(THINGS.values(), talks, strict=True)]
        async with serving(folder, cloud, level, *how, program=module) as service:  # started again
            for number, talk in enumerate(talks):
                await ask(
                    service.client, CLIENTS[(number + 1) % 3], talk, "Is anything else paid in May?"
                )
    found = told(model, cloud)
    assert (len(found) >= 7) if level is Disclosure.DRAFTS else found == []
    assert sum(said) >= 7, "else nothing was to be had"
    assert {talk[0][0] for talk in talks} <= {*cloud.heard.texts}
