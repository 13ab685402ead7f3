"""`dragonrt serve` as a user starts it: a process of its own, the official client, real models."""

import json
import math
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from openai import APIStatusError, OpenAI

from dragonrt.backends.llama_cpp.embedder import load_embedder
from dragonrt.bundled import questions
from dragonrt.node.process.library import Library
from dragonrt.service.cloud_process import CloudProcess, listening_process


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
def test_every_api_tells_the_same_text_and_its_probabilities(
    service: tuple[OpenAI, CloudProcess],
) -> None:
    client, _ = service
    asked, model = "What did Tom promise to do?", "dragon-small"
    response = client.responses.create(model=model, input=asked)
    text = response.output_text
    raw = client.chat.completions.with_raw_response.create(
        model=model,
        messages=[{"role": "user", "content": asked}],
        logprobs=True,
        top_logprobs=5,
        max_tokens=10**6,
        store=True,
    )
    assert "store" in raw.headers["warning"]
    assert "max_tokens" in raw.headers["warning"]
    chat = raw.parse()
    assert chat.choices[0].message.content == text
    assert chat.choices[0].logprobs is not None
    tokens = chat.choices[0].logprobs.content or []
    assert "".join(token.token for token in tokens).strip() == text.partition("\n\n")[0]
    for token in tokens:  # without a temperature the target is the likeliest token of the mixture
        assert token.top_logprobs[0].token == token.token
        ranked = [each.logprob for each in token.top_logprobs]
        assert ranked[0] == token.logprob <= 0
        assert ranked == sorted(ranked, reverse=True)
        assert sum(map(math.exp, ranked)) <= 1 + 1e-6
    timings = getattr(chat, "timings")  # noqa: B009
    assert timings["predicted_n"] >= timings["draft_n"] >= timings["draft_n_accepted"] > 0


@pytest.mark.slow
def test_embeddings_are_those_of_the_index(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    *_, name = [model.id for model in client.models.list()]
    texts = ["Tom repairs the fence.", "The ferry leaves at nine."]
    packed = client.embeddings.create(model=name, input=texts)  # base64, as this client asks
    plain = client.embeddings.create(model=name, input=texts[1], encoding_format="float")
    expected = load_embedder().encode(texts)
    assert np.array([each.embedding for each in packed.data], np.float32).tolist() == (
        expected.tolist()
    )
    assert plain.data[0].embedding == packed.data[1].embedding
    assert packed.usage.total_tokens > 0
    asked: Any
    for asked, param in (
        ({"input": []}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input": ""}, "input"),
        ({"input": "x", "dimensions": 7}, "dimensions"),
        ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "x", "model": "another"}, "model"),
    ):
        with pytest.raises(APIStatusError) as error:
            client.embeddings.create(**{"model": name, **asked})
        assert error.value.param == param


DASHBOARD = Path(__file__).parents[2] / "deploy" / "grafana.json"


@pytest.mark.slow
def test_the_dashboard_asks_for_what_the_metrics_tell(service: tuple[OpenAI, CloudProcess]) -> None:
    client, _ = service
    ask(client, "What did Tom promise to do?")
    with pytest.raises(APIStatusError):
        client.chat.completions.create(model="dragon-small", messages=[])
    base = str(client.base_url).removesuffix("v1/")
    page = httpx2.get(f"{base}metrics", headers=client.auth_headers).text
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page, re.MULTILINE))
    parts = [
        f"{name}_{part}"
        for name, kind in types.items()
        if kind == "histogram"
        for part in ("bucket", "sum", "count")
    ]
    samples = re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", page, re.MULTILINE)
    labels: dict[str, set[str]] = {name: set() for name in (*types, *parts)}
    for name, labelled, _ in samples:
        labels[name] |= set(re.findall(r'(\w+)="', labelled))
    asked = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", ()):
            named = re.findall(r"\b(?:dragonrt|process)_\w+", target["expr"])
            asked |= {*named}
            assert named, target
            assert not {*named} - {*types, *parts}, "a query for what is not told"
            grouped = " ".join(re.findall(r"by \(([^)]*)\)", target["expr"]))
            legend = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            for label in {*re.findall(r"\w+", grouped), *legend}:
                assert label in set.union(*(labels[name] for name in named)), (target, label)
    told = {name for name in types if name.startswith("dragonrt_")}
    shown = {name for name in told if any(each.startswith(name) for each in asked)}
    assert told == shown, "every metric is on the dashboard"
    values = {name: float(value) for name, labelled, value in samples if not labelled}
    assert values["dragonrt_index_files"] == values["dragonrt_index_chunks"] > 10
    assert all(values[f"dragonrt_{n}"] for n in ("batch_size_count", "prefix_cache_queries_total"))
    assert values["dragonrt_index_changed_timestamp_seconds"] > 1.7e9
    assert 'dragonrt_answers_together_total{others="all"}' in page
