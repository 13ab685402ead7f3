"""`dragonrt serve` as a user starts it: a process of its own, the official client, real models."""

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import OpenAI

from dragonrt.bundled import questions
from dragonrt.experiments.cloud_process import CloudProcess, listening_process
from dragonrt.runtime.library import Library


@pytest.fixture(scope="module")
def service(
    cloud: CloudProcess,
    library: Library,
    device_index: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[OpenAI, CloudProcess]]:
    """A service beside the cloud, and a client of it."""
    keys = tmp_path_factory.mktemp("serve") / "keys"
    keys.write_text("a key of the tests\n")
    command = ["dragonrt", "--config", os.devnull, "serve", "--port", str(cloud.wait_ready())]
    command += ["--http-port", "0", "--api-keys", str(keys), "--seed", "3"]
    command += ["--index", str(device_index), "--model", "dragon-small"]
    with listening_process(*command) as process:
        port = process.wait_ready()
        url = f"http://127.0.0.1:{port}/v1"
        with OpenAI(base_url=url, api_key="a key of the tests", max_retries=0) as client:
            yield client, process


def ask(client: OpenAI, question: str) -> str:
    stream = client.chat.completions.create(
        model="dragon-small", messages=[{"role": "user", "content": question}], stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


@pytest.mark.slow
def test_sixteen_clients_are_answered_from_both_sides_documents(
    service: tuple[OpenAI, CloudProcess],
) -> None:
    client, _ = service
    asked = [each for each in questions() if each.demo]
    with ThreadPoolExecutor(16) as threads:
        texts = list(threads.map(lambda n: ask(client, asked[n % len(asked)].text), range(16)))
    for number, text in enumerate(texts):
        assert text == texts[number % len(asked)], "the same text, whoever asks beside it"
        assert re.search(r"\n\nSources:\n- (device|cloud): [^\n]*“.*”", text)
    right = [each.answered_by(text) for each, text in zip(asked, texts, strict=False)]
    assert sum(right) >= len(asked) - 1


@pytest.mark.slow
def test_a_response_tells_its_sources_and_its_costs(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    response = client.responses.create(model="dragon-small", input="What did Tom promise to do?")
    assert response.output_text.startswith("paint the kitchen and repair the fence\n\nSources:")
    assert response.usage is not None
    assert response.usage.output_tokens == 9
    assert getattr(response, "dragonrt")["statistics"]["bytes_sent"] > 0  # noqa: B009


@pytest.mark.slow
def test_sigterm_ends_it(service: tuple[OpenAI, CloudProcess]) -> None:
    _, process = service
    os.kill(process.pid, signal.SIGTERM)
    assert process._process.wait(20) == 0
