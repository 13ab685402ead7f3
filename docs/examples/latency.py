"""Milliseconds per token over an emulated round trip: `python docs/examples/latency.py`.

Both sides run in this process, with the sample documents; the text must not change.
"""

import asyncio
from collections.abc import Sequence

import dragonrt
from dragonrt import bundled


async def measure(round_trips_ms: Sequence[int], tokens: int = 24) -> dict[int, tuple[float, str]]:
    """Return the milliseconds per token and the text of one question, by round trip."""
    question = bundled.questions()[0].text
    found, loop = {}, asyncio.get_running_loop()
    async with dragonrt.serve_cloud(documents=bundled.documents("cloud"), port=0) as port:
        for round_trip in round_trips_ms:
            async with dragonrt.connect(
                f"127.0.0.1:{port}",
                documents=bundled.documents("device"),
                link=f"{round_trip / 2:g}ms",  # one way, in each direction
                max_tokens=tokens,
            ) as device:
                start_s = loop.time()
                pieces = device.stream(question, seed=0)
                count = len([piece async for piece in pieces])
                taken_ms = 1000 * (loop.time() - start_s)
                found[round_trip] = (taken_ms / count, (await pieces).text)
    return found


if __name__ == "__main__":
    for round_trip, (ms, text) in asyncio.run(measure((0, 50, 100, 200))).items():
        print(f"{round_trip:4} ms: {ms:6.1f} ms a piece   {text}")
