"""`dragonrt demo`: sample documents, asked in two processes."""

from typing import Annotated, Any

from dragonrt.cli.answering import HttpOptions, LinkOptions
from dragonrt.cli.console import messages, output, say
from dragonrt.cli.loading import chosen_model
from dragonrt.cli.options import derived, option, settings
from dragonrt.modes.question import Question
from dragonrt.modes.settings import DragonSettings
from dragonrt.node.addresses import LinkSettings
from dragonrt.service.http.http_settings import HttpSettings, check_libraries

ROUND_TRIP_OF_100_MS = "50ms"


@derived({Question: "Sampling"})
class DemoOptions:
    """How tokens are sampled and documents used."""


@derived({DragonSettings: "Both sides together"})
class TogetherOptions:
    """How both sides come to one text."""


def demo(
    *,
    ask: Annotated[str | None, option("Ask this instead of the sample questions.")] = None,
    as_json: Annotated[bool, option("Print one JSON object per answer.", "--json")] = False,
    answers: DemoOptions | None = None,
    together: TogetherOptions | None = None,
    stop: Annotated[
        tuple[str, ...], option("Text that ends the answer; may be repeated.", panel="Sampling")
    ] = (),
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

    from dragonrt.experiments.demo import run_demo, serve_demo

    usual: Any = {"messages": messages, "emulate": emulate}
    if serve:
        served = settings(HttpSettings, http)
        check_libraries()
        serve_demo(question, how, served, stop, model, say=say, **usual)
    else:
        ways: Any = {"ask": ask, "as_json": as_json, "stops": stop}
        run_demo(question, how, model, output=output, **ways, **usual)
