"""Ways of answering measured against a cloud that already runs, on another host perhaps.

Nothing is emulated there: one round trip, the measured one. Used by experiments that otherwise
start their own clouds; needs a real clock.
"""

import sys
from collections.abc import Awaitable, Callable

from dragonrt.experiments.device_side import DeviceSide, sample_settings
from dragonrt.experiments.framework import ExperimentError
from dragonrt.experiments.lineup import OVER_A_NETWORK, Lineup, network_lineup
from dragonrt.runtime import main as programs
from dragonrt.runtime.endpoints import Address

LEFT_OUT = (
    "baselines: {} are left out: a cloud would give documents away or answer alone, which only the "
    "loopback experiment's own cloud does"
)


def asked_of(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `methods` that an ordinary cloud can be asked; stderr says which cannot."""
    left_out = ", ".join(name for name in methods if name not in OVER_A_NETWORK)
    print(LEFT_OUT.format(left_out), file=sys.stderr)
    return tuple(name for name in methods if name in OVER_A_NETWORK)


def measure_over_network(address: Address, measure: Callable[[Lineup], Awaitable[None]]) -> int:
    """Run `measure` connected to the cloud at `address`; the round trip meanwhile, milliseconds.

    Raises DragonError if the cloud cannot be reached, does not fit or was lost.
    """
    device = DeviceSide.load(sample_settings("device"))

    async def run() -> int:
        async with network_lineup(device, address) as (lineup, connector):
            await measure(lineup)
            if connector.peer is None:
                raise ExperimentError("the cloud was lost while measuring: run it again")
            return round(1000 * connector.peer.round_trip_s())

    return programs.run(run())
