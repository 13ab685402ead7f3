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
from dragonrt.service.http.api_answer import AnswerDesk
from dragonrt.service.http.application import HttpService
from dragonrt.service.http.http_settings import ApiKeys, HttpSettings
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.http.private_documents import PrivateDocuments
from dragonrt.service.http.request_body import ApiRequest
from dragonrt.service.http.web_server import HttpBounds, Places, listen_on, serving, url_of
from retrieval import Report

SHARE_OF_CONTEXT = 4
"""At most this part of the model's context is the answer's: its documents need room, too."""


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
    """Serve until SIGINT or SIGTERM; calls `on_ready` with the address. Raises DragonError.

    `question`, `seed` and `stops` are the defaults of requests.
    """
    keys = None if http.api_keys is None else ApiKeys.read(http.api_keys)
    context = http.context()
    longest = max(1, model.context_length // SHARE_OF_CONTEXT)
    defaults = ApiRequest(question, seed, stops, http.sources_in_text, longest, how.unranked)
    admission = Admission(http.answers_at_once, http.waiting)
    metrics = DeviceMetrics(0 if library is None else library.skipped)
    places = Places(HttpBounds().for_queue(http.answers_at_once + http.waiting))
    documents = PrivateDocuments(settings, http.uploads)

    def report(update: Report | DragonError) -> None:
        for each in (documents.report, metrics.report, on_report):
            each(update)

    stopped, sinks = asyncio.Event(), (on_notice, report, metrics.take)
    with listen_on(http.http_host, http.http_port) as listening:
        async with device(settings, model, library, members, how, *sinks) as connected:
            metrics.watch_device(connected, admission, places)
            service = HttpService(AnswerDesk(connected, admission, metrics), documents, defaults)
            async with serving(service.application(keys), listening, context, places) as server:

                def stop() -> None:
                    admission.closing = True
                    if stopped.is_set():
                        server.stop()
                    stopped.set()

                on_signals((signal.SIGINT, signal.SIGTERM), stop, stop)
                on_ready(url_of(http.http_host, listening, "https" if context else "http"))
                await stopped.wait()
