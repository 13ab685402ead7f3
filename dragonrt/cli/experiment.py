"""`dragonrt demo` and `dragonrt experiment latency`: the same questions by several methods."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from dragonrt import bundled
from dragonrt.cli.answering import DOCUMENTS, HttpOptions, LinkOptions, Stops
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import chosen_model, counting, load, make_file
from dragonrt.cli.options import NETWORK, derived, given, option, settings
from dragonrt.errors import DragonError
from dragonrt.experiments.cloud_process import cloud_process
from dragonrt.link.units import parse_duration
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.node.connections.addresses import LinkSettings, NetworkSettings
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.service.http.http_settings import HttpSettings, check_libraries

ROUND_TRIP_OF_100_MS = "50ms"


@derived({Question: "Sampling"})
class DemoOptions:
    """How tokens are sampled and documents used."""


@derived({DragonSettings: "Both sides together"})
class TogetherOptions:
    """How both sides decide one text."""


def demo(
    *,
    ask: Annotated[
        str | None, option("Ask this instead of the sample questions.", full=True)
    ] = None,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    stop: Stops = (),
    link: LinkOptions | None = None,
    model: Annotated[
        str | None, option("What both sides run.", default="smollm2 if it is installed")
    ] = None,
    serve: Annotated[bool, option("Serve the sample documents: a page, and OpenAI's API.")] = False,
    http: HttpOptions | None = None,
) -> None:
    """Ask sample documents, private and public, in two processes, and compare."""
    question, how = settings(Question, answers), settings(DragonSettings, together)
    emulate = settings(LinkSettings, link).or_latency(ROUND_TRIP_OF_100_MS).emulate("device")
    model = chosen_model(model)
    make_file(model)

    from dragonrt.experiments.demo import run_demo, serve_demo

    usual: Any = {"messages": messages, "emulate": emulate}
    if serve:
        served = settings(HttpSettings, http)
        check_libraries()
        serve_demo(question, how, served, stop, model, say=say, **usual)
    else:
        ways: Any = {"ask": ask, "as_json": as_json, "stops": stop}
        run_demo(question, how, model, output=output, **ways, **usual)


@derived({SideSettings: DOCUMENTS, NetworkSettings: NETWORK}, without=("rebuild", "share_sources"))
class MeasuredOptions:
    """What the device answers with, and the address of the cloud."""


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
        Path, option("Writes latency.csv and latency.png there.", kind="DIR", default="results")
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

        from dragonrt.experiments.latency import inject, report
        from dragonrt.node.process.programs import run

        model, library = load(side)
        if library is None:
            raise DragonError("this experiment needs documents: --documents DIR")
        address = reached.device_address(LinkSettings())
        if cloud is not None:
            address = replace(address, host="127.0.0.1", port=cloud.wait_ready())
        with counting("latency") as progress:
            pair = (side, model, library, address)
            found = run(inject(*pair, prompts, question, how, extra_s, progress))
    report(found, f"{model.name}, {len(prompts)} questions", results, output)


def _prompts(file: Path | None) -> list[str]:
    """Return the questions to ask. Raises DragonError for a file without any."""
    if file is None:
        return [each.text for each in bundled.questions() if each.demo]
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DragonError(f"cannot read the questions in {file}: {error}") from None
    if found := [line.strip() for line in lines if line.strip()]:
        return found
    raise DragonError(f"{file} has no question: write one per line")
