"""The device as a service: connected to its other sides, open to HTTP clients until it is ended."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from dragonrt.backends.model import LanguageModel
from dragonrt.errors import DragonError
from dragonrt.modes.question import Question
from dragonrt.modes.settings import Settings
from dragonrt.node.addresses import Member
from dragonrt.node.ending import on_signals
from dragonrt.node.library import Library
from dragonrt.node.main import device
from dragonrt.node.reindexing import OnReport
from dragonrt.node.side_settings import SideSettings
from dragonrt.service.http.admission import Admission
from dragonrt.service.http.application import HttpService
from dragonrt.service.http.bounded_http import HttpBounds, Places
from dragonrt.service.http.http_metrics import HttpMetrics
from dragonrt.service.http.http_settings import HttpSettings
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.request_body import Defaults
from dragonrt.service.http.side_metrics import IndexNews
from dragonrt.service.http.web_server import listen_on, serving, url_of
from retrieval import Report

SHARE_OF_CONTEXT = 4
"""At most this part of what the model can read is the answer's: its documents need room, too."""


async def serve_device(
    settings: SideSettings,
    model: LanguageModel,
    library: Library | None,
    members: Sequence[Member],
    how: Settings,
    http: HttpSettings,
    question: Question,
    seed: int | None,
    stops: tuple[str, ...],
    on_notice: Callable[[str], None],
    on_report: OnReport,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` hears the address. Raises DragonError.

    `question`, `seed` and `stops` hold where a request says nothing.
    """
    keys, context = http.keys(), http.context()
    longest = max(1, model.context_length // SHARE_OF_CONTEXT)
    defaults = Defaults(question, seed, stops, http.sources_in_text, longest, how.unranked)
    admission, metrics = Admission(http.answers_at_once, http.waiting), HttpMetrics()
    places = Places(HttpBounds().for_queue(http.answers_at_once + http.waiting))
    documents = PrivateDocuments(settings, http.uploads)
    news = IndexNews(0 if library is None else library.skipped)

    def reported(report: Report | DragonError) -> None:
        documents.heard(report)
        news.heard(report)
        on_report(report)

    stopped, said = asyncio.Event(), (on_notice, reported, metrics.take)
    with listen_on(http.http_host, http.http_port) as listening:
        async with device(settings, model, library, members, how, *said) as connected:
            metrics.read_from(connected, admission, places, news)
            service = HttpService(connected, documents, defaults, admission, metrics)
            async with serving(service.application(keys), listening, context, places) as server:

                def stop() -> None:
                    admission.closing = True
                    if stopped.is_set():
                        server.stop()
                    stopped.set()

                on_signals((signal.SIGINT, signal.SIGTERM), stop, stop)
                on_ready(url_of(http.http_host, listening, "https" if context else "http"))
                await stopped.wait()
