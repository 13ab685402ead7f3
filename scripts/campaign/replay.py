"""Give a recorded answer again, in virtual time, over any link."""

from collections.abc import Callable
from functools import partial

from dragonrt.link.stream import Stream
from dragonrt.node.client_session import Answer
from dragonrt.side import Side
from dragonrt.testing.loop import run
from dragonrt.testing.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.testing.scripted import Script, SimulatedModel
from scripts.campaign.recorded import RecordedContext, Recording


def replay(recording: Recording, emulate: Callable[[Stream], Stream] | None = None) -> Answer:
    """The answer under the recording's settings; `emulate` puts a link around the device's stream.

    Retrieval and prefill take no time. Raises RecordingError where the recording has gaps.
    """
    standing_in: dict[Side, set[int]] = {"device": set(), "cloud": set()}
    script = Script(0, vocabulary=recording.vocabulary)

    def context(side: Side, model: SimulatedModel, delay_s: Callable[[], float]) -> RecordedContext:
        return RecordedContext(side, recording, model, standing_in[side])

    async def answer() -> Answer:
        device, cloud = (
            SimulatedSide(side, lambda _: script, make_context=partial(context, side))
            for side in ("device", "cloud")
        )
        server = SimulatedCloud(cloud)
        async with linked_device(server, device, emulate or (lambda stream: stream)) as linked:
            given = await linked.asking(recording.question, recording.settings).ask()
        await server.wait_idle()
        return given

    given = run(answer())
    recording.check(given, standing_in)
    return given
