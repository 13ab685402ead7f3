"""Give a recorded answer again, in virtual time, over any link."""

from collections.abc import Callable

from dragonrt.link.stream import Stream
from dragonrt.runtime.modes.dragon import Answer
from dragonrt.runtime.plan import Plan
from dragonrt.side import Side
from dragonrt.simulation.drafter import Script
from dragonrt.simulation.loop import run
from dragonrt.simulation.pair import SimulatedCloud, SimulatedSide, linked_device
from dragonrt.simulation.recorded import RecordedDrafter, Recording


def replay(recording: Recording, emulate: Callable[[Stream], Stream] | None = None) -> Answer:
    """The answer under the recording's plan; `emulate` puts a link around the device's stream.

    Retrieval and prefill take no time. Raises RecordingError where the recording has gaps.
    """
    standing_in: dict[Side, set[int]] = {"device": set(), "cloud": set()}
    script = Script(0, vocabulary=recording.vocabulary)

    def make(
        side: Side, plan: Plan, script: Script, delay_s: Callable[[], float]
    ) -> RecordedDrafter:
        return RecordedDrafter(side, plan, recording, standing_in[side])

    async def answer() -> Answer:
        cloud = SimulatedCloud(SimulatedSide("cloud", lambda _: script, make_drafter=make))
        side = SimulatedSide("device", lambda _: script, make_drafter=make)
        async with linked_device(cloud, side, emulate or (lambda stream: stream)) as device:
            given = await device.asking(recording.plan).ask("?")
        await cloud.wait_idle()
        return given

    given = run(answer())
    recording.check(given, standing_in)
    return given
