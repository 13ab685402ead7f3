"""Loading models by name, and what a loaded model says about itself."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from dragonrt import bundled
from dragonrt.backends import DocumentKV, LanguageModel, ModelError, RowWeights, threads
from dragonrt.backends.torch_.linear import Linear
from dragonrt.errors import DragonError


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return LanguageModel.load("dragon-small", on="cpu")


def copy_of_draft(tmp_path: Path, **changes: object) -> Path:
    """A bundled model's directory with changes to its configuration."""
    directory = tmp_path / "model"
    shutil.copytree(bundled.model_path("dragon-draft"), directory)
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(config | changes))
    return directory


def test_a_bundled_model_describes_itself(model: LanguageModel) -> None:
    assert model.name == "dragon-small"
    assert model.vocabulary == 8192
    assert model.hidden_size == 256
    assert model.context_length == 1024
    assert (model.on, model.dtype) == ("cpu", "float32")
    assert model.parameters == 5_786_368
    assert model.decode(list(model.stop_tokens)) == ""
    assert model.document_fingerprint.startswith(model.fingerprint)


def test_a_bundled_model_answers_from_its_document(model: LanguageModel) -> None:
    documents = ["My flight leaves from gate B12.", "The library opens at nine."]
    kvs = [
        model.document_kv(model.encode(model.prompt.document_text("", text))) for text in documents
    ]
    sequence = model.sequence(kvs)
    question = model.prompt.question_text([], "From which gate does my flight leave?")
    rows = sequence.extend(model.encode(question))
    answer = ""
    while not answer.endswith(model.prompt.template.stops) and sequence.length < 100:
        probabilities = RowWeights([14.0, 4.0]).mixed(rows)
        token = int(probabilities.argmax())
        answer += model.decode([token])
        rows = sequence.extend([token])
    assert answer.strip() == "B12"


def test_every_bundled_model_shares_the_tokenizer(model: LanguageModel) -> None:
    others = [LanguageModel.load(name, on="cpu") for name in bundled.models()[1:]]
    assert {other.tokenizer_fingerprint for other in others} == {model.tokenizer_fingerprint}
    assert len({other.fingerprint for other in [model, *others]}) == 3


def test_the_fingerprint_names_the_checkpoint_not_the_precision(tmp_path: Path) -> None:
    directory = copy_of_draft(tmp_path)
    bundled_draft = LanguageModel.load("dragon-draft", on="cpu")
    half = LanguageModel.load(directory, on="cpu", dtype="bfloat16")
    assert half.dtype == "bfloat16"
    assert half.fingerprint == bundled_draft.fingerprint
    assert half.document_fingerprint != bundled_draft.document_fingerprint
    changed = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    changed.model.layers[0].mlp.up_proj.weight.data[0, 0] += 0.5
    changed.save_pretrained(directory)
    assert LanguageModel.load(directory, on="cpu").fingerprint != half.fingerprint


def test_another_rotation_is_another_fingerprint(tmp_path: Path) -> None:
    rope = {"rope_type": "default", "rope_theta": 20000.0}
    changed = copy_of_draft(tmp_path, rope_parameters=rope, rope_theta=20000.0)
    same = LanguageModel.load("dragon-draft", on="cpu")
    assert LanguageModel.load(changed, on="cpu").fingerprint != same.fingerprint


def test_bfloat16_documents_can_be_stored(tmp_path: Path) -> None:
    model = LanguageModel.load("dragon-draft", on="cpu", dtype="bfloat16")
    document = model.document_kv(model.encode("Document: The ferry leaves at noon.\n\n"))
    arrays = document.to_arrays()
    assert {array.dtype.name for array in arrays.values()} == {"uint16"}
    stored = DocumentKV.from_arrays(arrays)
    rows = [model.sequence([kv]).extend(model.encode("Question")) for kv in (document, stored)]
    assert torch.equal(*rows)
    full = LanguageModel.load("dragon-draft", on="cpu")
    with pytest.raises(ModelError, match="made by another model"):
        full.sequence([stored])


def test_documents_of_another_model_are_refused(model: LanguageModel) -> None:
    other = LanguageModel.load("dragon-draft", on="cpu")
    with pytest.raises(ModelError, match="made by another model"):
        model.sequence([other.document_kv([5, 6])])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dragon-large", "neither a bundled model .dragon-small, .*owner/name"),
        ("no/such/directory", "neither a bundled model"),
    ],
)
def test_an_unknown_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        LanguageModel.load(name)
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise OSError(f"We couldn't connect to the hub to load {name}.\nCheck your connection.")

    monkeypatch.setattr("dragonrt.backends.torch_.checkpoint.AutoConfig.from_pretrained", fail)
    with pytest.raises(ModelError, match=r"the hub could not be reached.*connect") as caught:
        LanguageModel.load("some/model")
    assert "\n" not in str(caught.value)


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    directory = copy_of_draft(tmp_path, model_type="t5", is_encoder_decoder=True)
    with pytest.raises(ModelError, match="t5 model, not a decoder-only language model"):
        LanguageModel.load(directory)


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    directory = copy_of_draft(tmp_path)
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="safetensors"):
        LanguageModel.load(directory)


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    directory = copy_of_draft(tmp_path)
    (directory / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0not a header at all")
    with pytest.raises(DragonError) as caught:
        LanguageModel.load(directory)
    assert "\n" not in str(caught.value)


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    directory = copy_of_draft(tmp_path, num_hidden_layers=4)
    with pytest.raises(ModelError, match=r"lacks weights such as model\.layers\.3"):
        LanguageModel.load(directory)


def test_a_missing_backend_is_reported() -> None:
    missing = "cuda" if not torch.cuda.is_available() else "mps"
    with pytest.raises(ModelError, match=f"finds no {missing} backend"):
        LanguageModel.load("dragon-draft", on=missing)  # type: ignore[arg-type]


def test_torch_uses_the_threads_asked_for() -> None:
    before = torch.get_num_threads()
    try:
        LanguageModel.load("dragon-draft", on="cpu", threads=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_side_takes_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for cores, expected in ((1, 1), (2, 1), (8, 4), (64, 8)):
        monkeypatch.setattr(threads, "_physical_cores", lambda cores=cores: cores)
        assert threads.usual_threads() == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert threads.usual_threads() == 3


def test_processors_that_share_a_core_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setattr(threads, "_siblings", lambda number: f"{number % 2},{number % 2 + 2}")
    assert threads._physical_cores() == 2


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inputs", [40, 1024, 2500])
def test_a_linear_layer_is_the_product(
    packed: bool, inputs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragonrt.backends.torch_.linear._packing_works", lambda _: packed)
    torch.manual_seed(0)
    weight, bias, x = torch.randn(30, inputs), torch.randn(30), torch.randn(5, inputs)
    expected = (x.double() @ weight.T.double() + bias.double()).float()
    torch.testing.assert_close(Linear(weight, bias)(x), expected, atol=1e-3, rtol=0)
    plain = (x.double() @ weight.T.double()).float()
    torch.testing.assert_close(Linear(weight)(x), plain, atol=1e-3, rtol=0)


def test_stop_strings_of_one_token_end_an_answer() -> None:
    model = LanguageModel.load("dragon-draft", on="cpu")
    newline = tuple(model.encode("\n"))
    assert model.answer_stops == (*model.stop_tokens, *newline)
    assert model.with_stops(("\n", "more than one token")) == model.answer_stops
    assert model.asked("Question: who?\nAnswer:").stops == model.answer_stops
    assert model.begun("The sea").stops == ()
