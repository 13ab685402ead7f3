"""Where a setting comes from, and which options the fields of settings are."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from cyclopts import App

from dragonrt.cli.answering import AnswerOptions
from dragonrt.cli.options import (
    EnvironmentVariables,
    SettingsError,
    SettingsFile,
    derived,
    given,
    option,
)
from dragonrt.modes import MODES, question_and_settings
from dragonrt.modes.dragon.settings import DragonSettings
from dragonrt.modes.question import Question
from dragonrt.modes.speculative.settings import SpeculativeSettings
from dragonrt.modes.sprinter import SprinterSettings
from dragonrt.node.connections.addresses import NetworkSettings
from dragonrt.node.process.side_settings import SideSettings
from dragonrt.settings import entries

Run = Callable[..., Any]


@derived(
    dict.fromkeys((Question, DragonSettings, SprinterSettings, NetworkSettings), "One"), "Several"
)
class AllOptions:
    """The device's options but for the documents."""


@derived({SideSettings: "Side"}, only=("documents",))
class DocumentOptions:
    """Fields of two classes may have one name."""


def parse(*arguments: str, file: Path | None = None) -> dict[str, Any]:
    """What a command with the device's options was given."""
    got: dict[str, Any] = {}
    app = App(result_action="return_value")

    @app.command
    def device(
        *,
        options: AllOptions | None = None,
        own: DocumentOptions | None = None,
        stop: Annotated[tuple[str, ...], option("")] = (),
    ) -> None:
        got.update(given(options), own=given(own), stop=stop)

    app.config = (EnvironmentVariables(), *([SettingsFile.read(file, app)] if file else []))
    app(["device", *arguments], exit_on_error=False, print_error=False)
    return got


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """A settings file with one table, [device]."""

    def write(text: str) -> Path:
        path = tmp_path / "settings.toml"
        path.write_text(f"[device]\n{text}\n", encoding="utf-8")
        return path

    return write


def test_flag_then_environment_then_file_then_default(
    monkeypatch: pytest.MonkeyPatch, file: Callable[[str], Path]
) -> None:
    settings = file("port = 3")
    assert "port" not in parse(), "the default is the settings' own"
    assert parse(file=settings)["port"] == 3
    monkeypatch.setenv("DRAGONRT_PORT", "2")
    assert parse(file=settings)["port"] == 2
    assert parse("--port", "1", file=settings)["port"] == 1


def test_the_last_of_two_flags_counts_and_lists_have_all() -> None:
    got = parse("-p", "1", "--port", "2", "--stop", "a", "--stop", "b", "--follow", "--no-follow")
    assert (got["port"], got["stop"], got["follow"]) == (2, ("a", "b"), False)


def test_values_of_every_kind_come_from_a_file(file: Callable[[str], Path]) -> None:
    text = (
        'documents = "my notes"\ndocuments-per-side = 3\nfollow = false\ntemperature = 1\n'
        'max_tokens = 9\nstop = ["a", "b"]\non-loss = "wait"'
    )
    got = parse(file=file(text))
    assert got.pop("own") == {"documents": (Path("my notes"),)}
    numbers = {"documents": 3, "follow": False, "temperature": 1.0, "max_tokens": 9}
    assert got == {**numbers, "stop": ("a", "b"), "on_loss": "wait"}


def test_one_string_may_stand_for_a_list_of_one(file: Callable[[str], Path]) -> None:
    assert parse(file=file('stop = "END"'))["stop"] == ("END",)


def test_flags_and_environment_undo_a_file(
    monkeypatch: pytest.MonkeyPatch, file: Callable[[str], Path]
) -> None:
    settings = file("follow = false")
    assert parse("--follow", file=settings)["follow"] is True
    monkeypatch.setenv("DRAGONRT_FOLLOW", "true")
    assert parse(file=settings)["follow"] is True
    assert parse("--no-follow")["follow"] is False
    monkeypatch.setenv("DRAGONRT_NO_FOLLOW", "true")
    with pytest.raises(SettingsError):
        parse()


def test_a_rare_setting_is_no_option(
    monkeypatch: pytest.MonkeyPatch, file: Callable[[str], Path]
) -> None:
    settings = file("run_ahead = 4")
    assert parse(file=settings)["run_ahead"] == 4
    with pytest.raises(SettingsError, match="run-ahead"):
        parse("--run-ahead", "3", file=settings)
    monkeypatch.setenv("DRAGONRT_RUN_AHEAD", "2")
    assert parse(file=settings)["run_ahead"] == 2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("porty = 1", "porty"),
        ("no-follow = true", "no-follow"),
        ("help = true", "help"),
        ("port = [1]", "port"),
        ("[device.port]", "port"),
        ("follow = 1", "follow"),
        ("port = true", "port"),
        ("[dev]", "[dev]"),
        ("port", "line 2"),
    ],
)
def test_mistakes_of_a_file_are_named(file: Callable[[str], Path], text: str, named: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse(file=file(text))
    assert named in str(caught.value).partition("settings.toml")[2]


def test_a_setting_outside_of_a_table_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dragonrt.toml").write_text("device = 1\n")
    assert "device must be a table: write [device]" in run("profile").line


def test_the_file_here_comes_before_the_users_own(run: Run, tmp_path: Path) -> None:
    users = tmp_path / "config" / "dragonrt" / "dragonrt.toml"
    users.parent.mkdir(parents=True)
    users.write_text('[device]\ncodec = "of the user"\n')
    assert "'of the user'" in run("device").line
    (tmp_path / "dragonrt.toml").write_text('[device]\ncodec = "from here"\n')
    assert "'from here'" in run("device").line
    (tmp_path / "other.toml").write_text('[device]\ncodec = "named"\n')
    assert "'named'" in run("--config", "other.toml", "device").line


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[device"])
def test_an_unreadable_file_is_one_line(run: Run, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "my.toml").write_bytes(content)
    assert "my.toml" in run("--config", "my.toml", "device").line


def test_tables_of_nested_commands_are_known(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dragonrt.toml").write_text("[keys.sing]\n")
    assert "there is no table [keys.sing]; there are [keys." in run("profile").line


def test_all_sources_share_one_check(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "--max-tokens must be an integer from 1 to 65536, not 0"
    assert run("device", "--max-tokens", "0").line == said
    (tmp_path / "dragonrt.toml").write_text("[device]\nmax-tokens = 0\n")
    assert run("device").line == said
    (tmp_path / "dragonrt.toml").unlink()
    monkeypatch.setenv("DRAGONRT_MAX_TOKENS", "0")
    assert run("device").line == said


def test_without_options_the_settings_have_their_own_defaults() -> None:
    for name, mode in MODES.items():
        assert question_and_settings(name, given(AnswerOptions())) == (Question(), mode.settings())
    assert Question().sampler.temperature == 0


def test_every_setting_of_every_mode_is_an_option() -> None:
    options = set(AnswerOptions.__dataclass_fields__)  # type: ignore[attr-defined]
    for mode in MODES.values():
        assert options >= {entry.name for entry in entries(mode.settings)}
    asked = {entry.name for entry in entries(Question)}
    own = {"prompt", "instructions", "history", "shown", "stop_tokens", "accepted", "top_logprobs"}
    assert asked - options == own | {"chunk"}


def test_the_options_shape_question_and_settings() -> None:
    values = {"temperature": 0.5, "top_k": 3, "pipelined": False}
    question, how = question_and_settings("speculative", values)
    assert (question.sampler.temperature, question.sampler.top_k) == (0.5, 3)
    assert isinstance(how, SpeculativeSettings)
    assert (how, how.length, how.outstanding) == (SpeculativeSettings(pipelined=False), 8, 1)


def test_the_help_says_that_the_text_is_approximate(run: Run) -> None:
    assert "approximate" in run("device", "--help").output


def test_no_default_in_the_help_is_empty(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert "[default: 64]" in (shown := run("device", "--help-all").output)
    assert "[default: ]" not in shown


@pytest.mark.slow
def test_workers_that_cannot_be_reached_are_named(run: Run) -> None:
    places = ["--worker", "127.0.0.1:9", "--worker", "127.0.0.1:11"]
    outcome = run("device", "--mode", "federated", *places, "--ask", "Who?")
    assert outcome.code == 1
    for place in ("127.0.0.1:9", "127.0.0.1:11"):
        assert f"cannot reach {place}: connection refused" in outcome.errors


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_without_documents_warns_first(run: Run, mode: str) -> None:
    asked = ["device", "--mode", mode, *(["--worker", "[::1]:1"] if mode == "federated" else [])]
    # There is no such model: nothing is loaded.
    errors = run(*asked, "--model", "./none", "--documents", "here").errors
    assert ("does not answer from them: --mode dragon does" in errors) == (mode != "dragon")
    assert "answer from them" not in run(*asked, "--model", "./none").errors
