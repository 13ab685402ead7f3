"""The metrics of a device, scraped while it works."""

import asyncio
import sys
from collections.abc import Iterator

import pytest
from prometheus_client import generate_latest

from dragonrt.service.http.guard import Admission
from dragonrt.service.http.metrics import DeviceMetrics
from dragonrt.service.http.web_server import HttpBounds, Places
from tests.service.conftest import reciting_device

PEERS = 2000


@pytest.fixture
def _fast_switches() -> Iterator[None]:
    """Let threads take turns within one iteration over a dictionary."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.mark.usefixtures("_fast_switches")
async def test_new_labels_during_a_scrape_do_not_break_it() -> None:
    device, _ = reciting_device({})
    metrics = DeviceMetrics()
    metrics.watch_device(device, Admission(1, 1), Places(HttpBounds()))

    def probe() -> None:
        for peer in range(PEERS):
            metrics.count("refused", {peer: 1})

    probing = asyncio.create_task(asyncio.to_thread(probe))
    while not probing.done():
        generate_latest(metrics.registry)
        await asyncio.sleep(0)
    await probing
    page = generate_latest(metrics.registry).decode()
    assert page.count("dragonrt_refused_total{") == PEERS


def test_services_of_one_process_have_metrics_of_their_own() -> None:
    first, second = DeviceMetrics(), DeviceMetrics()
    first.count("refused", {429: 1})
    assert 'dragonrt_refused_total{status="429"} 1.0' in generate_latest(first.registry).decode()
    assert "429" not in generate_latest(second.registry).decode()
