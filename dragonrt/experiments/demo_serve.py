"""The sample documents as a service: a cloud in a second process, the page and the API in this one.

Heavy modules are imported only once that process has started, so that both load at the same time.
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import platformdirs
from rich.console import Console

from dragonrt import bundled
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.link.stream import Stream
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.service.http.http_settings import HttpSettings


def serve_demo(
    question: Question,
    how: DragonSettings,
    http: HttpSettings,
    stops: tuple[str, ...],
    model: str,
    *,
    messages: Console,
    say: Callable[[str], None],
    emulate: Callable[[Stream], Stream] | None = None,
) -> None:
    """Serve until Ctrl-C; `say` hears where. Files dropped on the page are kept beside the notes.

    The notes are a copy in the user's data directory: the package's own are never written to.
    Raises DragonError or RetrievalError.
    """
    with cloud_process("--documents", str(bundled.documents("cloud")), model=model) as cloud:
        with messages.status("starting two processes"):
            from dragonrt.experiments.sample_sides import LoadedSide, sample_settings
            from dragonrt.node.addresses import Member
            from dragonrt.node.endpoints import Address
            from dragonrt.node.main import run
            from dragonrt.service.http.private_documents import with_uploads
            from dragonrt.service.http.serve import serve_device

            notes = _own_notes()
            http = replace(http, uploads=http.uploads or notes / "dropped")
            side = replace(sample_settings("device", model), documents=(notes,))
            device = LoadedSide.load(with_uploads(side, http.uploads), kv=False)
            port = cloud.wait_ready()
        address = Address("127.0.0.1", port, emulate=emulate)
        serving = serve_device(
            device.settings,
            device.model,
            device.library,
            [Member("cloud", address)],
            how,
            http,
            question,
            None,
            stops,
            on_notice=say,
            on_report=lambda report: None,
            on_ready=lambda url: say(f"serve: a page with the sample documents answers at {url}"),
        )
        say("Ctrl-C ends both processes")
        run(serving)


def _own_notes() -> Path:
    notes = Path(platformdirs.user_data_dir("dragonrt")) / "demo" / "notes"
    shutil.copytree(bundled.documents("device"), notes, dirs_exist_ok=True)
    return notes
