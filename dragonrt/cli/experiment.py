"""`dragonrt experiment latency`: the same questions over slower and slower links."""

import csv
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App

from dragonrt import bundled
from dragonrt.cli.answering import DOCUMENTS
from dragonrt.cli.console import output
from dragonrt.cli.demo import DemoOptions, TogetherOptions
from dragonrt.cli.loading import chosen_model, counting, load
from dragonrt.cli.options import NETWORK, derived, given, option, settings
from dragonrt.errors import DragonError
from dragonrt.link.profile import parse_duration
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.cloud_process import cloud_process

if TYPE_CHECKING:
    from dragonrt.service.comparison import Slowed


@derived({SideSettings: DOCUMENTS, NetworkSettings: NETWORK}, without=("rebuild", "share_sources"))
class MeasuredOptions:
    """Options of the device, and the address of the cloud."""


experiment = App(name="experiment", help="Measure your own pair of sides.")


@experiment.command
def latency(
    *,
    own: MeasuredOptions | None = None,
    cloud_documents: Annotated[
        Path | None,
        option("Documents of the cloud that is started. Default: the sample articles.", kind="DIR"),
    ] = None,
    questions: Annotated[
        Path | None, option("One question per line. Default: the sample questions.", kind="FILE")
    ] = None,
    round_trip: Annotated[
        tuple[str, ...],
        option("Added to the network's; may be repeated.", default="0ms, 100ms, 300ms"),
    ] = ("0ms", "100ms", "300ms"),
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    results: Annotated[
        Path, option("Writes latency.csv there.", kind="DIR", default="results")
    ] = Path("results"),
) -> None:
    """Ask the same questions at increasing round-trip times, by four methods.

    Without --host a second process on this machine is the cloud.
    """
    extra_s = [parse_duration(each) for each in round_trip]
    reached = settings(NetworkSettings, own)
    remote = bool({"host", "port"} & given(own).keys())
    if remote and cloud_documents is not None:
        raise DragonError("a remote cloud has its own documents: leave --cloud-documents out")
    side = settings(SideSettings, own, side="device")
    side = replace(side, model=chosen_model(side.model))
    if not side.has_documents:
        side = replace(side, documents=(bundled.documents("device"),))
    elif questions is None:
        raise DragonError("your documents need questions: give --questions FILE, one per line")
    prompts = _prompts(questions)
    question, how = settings(Question, answers), settings(DragonSettings, together)

    with ExitStack() as stack:
        cloud = None
        if not remote:
            public = str(cloud_documents or bundled.documents("cloud"))
            options = ("--documents", public, "--dtype", side.dtype)
            cloud = stack.enter_context(cloud_process(*options, model=side.model))

        from dragonrt.node.process.programs import run
        from dragonrt.service.comparison import over_slower_links

        model, library = load(side)
        if library is None:
            raise DragonError("this experiment needs documents: --documents DIR")
        address = reached.device_address(LinkSettings())
        if cloud is not None:
            address = replace(address, host="127.0.0.1", port=cloud.wait_ready())
        with counting("latency") as progress:
            pair = (side, model, library, address)
            found = run(over_slower_links(*pair, prompts, question, how, extra_s, progress))
    _report(found, results)


def _report(found: "Sequence[Slowed]", folder: Path) -> None:
    """Print a table per round trip, and write all answers to latency.csv. Raises DragonError."""
    from dragonrt.service.comparison import LEGEND, comparison_table

    for each in found:
        output.print(f"\n{each.title}")
        output.print(comparison_table(each.found))
    output.print(f"{LEGEND}\n", style="dim")
    rows, table = [row for each in found for row in each.rows()], folder / "latency.csv"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with table.open("w", newline="", encoding="utf-8") as file:
            lines = csv.DictWriter(file, list(rows[0]))
            lines.writeheader()
            lines.writerows(rows)
    except OSError as error:
        raise DragonError(f"cannot write {table}: {error.strerror}") from None
    output.print(str(table), markup=False, soft_wrap=True)


def _prompts(file: Path | None) -> list[str]:
    """Return the questions to ask. Raises DragonError for a file without any."""
    if file is None:
        return [each.text for each in bundled.questions() if each.demo]
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise DragonError(
            f"cannot read the questions in {file}: {why}; name a text with one per line"
        ) from None
    if found := [line.strip() for line in lines if line.strip()]:
        return found
    raise DragonError(f"{file} has no question: write one per line")
