"""Carry IP packets between two TUN devices: delayed, reordered by jitter, some lost.

What netem does, for kernels without it. `scripts/netns-lab` moves one device into each namespace.
"""

import fcntl
import heapq
import os
import select
import struct
import sys
import time
from contextlib import suppress
from random import Random

SET_NAME, TUN, BARE = 0x400454CA, 0x0001, 0x1000  # of linux/if_tun.h
LARGEST = 2**16  # bytes of a packet


def tun(name: str) -> int:
    """Return the descriptor of a new TUN device of that name; it goes when that is closed."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, SET_NAME, struct.pack("16sH22x", name.encode(), TUN | BARE))
    return descriptor


def delay_s(delay_ms: float, jitter_ms: float, loss: float, random: Random) -> float | None:
    """Return how long one packet takes, from delay - jitter to delay + jitter; None: it is lost."""
    if random.random() < loss:
        return None
    return max(0.0, delay_ms + random.uniform(-jitter_ms, jitter_ms)) / 1e3


def relay(ends: tuple[int, int], delay_ms: float, jitter_ms: float, loss: float) -> None:
    """Carry packets until the process is ended. Raises OSError if a device is taken away."""
    random, due = Random(0), list[tuple[float, int, int, bytes]]()
    number = 0
    while True:
        wait_s = max(0.0, due[0][0] - time.monotonic()) if due else None
        ready, _, _ = select.select(ends, (), (), wait_s)
        for end in ready:
            packet, other = os.read(end, LARGEST), ends[1 - ends.index(end)]
            taken_s = delay_s(delay_ms, jitter_ms, loss, random)
            if taken_s is not None:
                number += 1
                heapq.heappush(due, (time.monotonic() + taken_s, number, other, packet))
        while due and due[0][0] <= time.monotonic():
            _, _, other, packet = heapq.heappop(due)
            with suppress(OSError):  # a device that is not up, or is full, loses it
                os.write(other, packet)


if __name__ == "__main__":
    first, second, delay, jitter, percent = sys.argv[1:]
    try:
        relay((tun(first), tun(second)), float(delay), float(jitter), float(percent) / 100)
    except OSError as error:
        sys.exit(f"no packets are carried between TUN devices: {error}")
