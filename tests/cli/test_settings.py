"""Where a setting comes from: flag, environment, file, default; and what a file may not say."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from dragonrt.cli.groups import grouped, option
from dragonrt.cli.options import AnswerOptions, EmulationOptions, NetworkOptions, SideOptions
from dragonrt.cli.settings import SettingsError, read_settings

Run = Callable[..., Any]


def parse(*arguments: str, file: Path | None = None) -> dict[str, Any]:
    """The groups that a command with the device's options gets."""
    app = typer.Typer()
    got: dict[str, Any] = {}

    @app.callback()
    def configure(context: typer.Context) -> None:
        context.default_map = read_settings(file, context.command) if file is not None else {}

    def device(
        network: NetworkOptions,
        answers: AnswerOptions,
        own: SideOptions,
        tls: Annotated[bool, option("", "--tls")] = False,
    ) -> None:
        got.update(network=network, answers=answers, own=own, tls=tls)

    app.command()(grouped(device))
    result = CliRunner().invoke(app, ["device", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return got


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], Path]:
    """A settings file with one table, [device]."""

    def write(text: str) -> Path:
        path = tmp_path / "settings.toml"
        path.write_text(f"[device]\n{text}\n", encoding="utf-8")
        return path

    return write


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(
    monkeypatch: pytest.MonkeyPatch, file: Callable[[str], Path]
) -> None:
    settings = file("port = 3")
    assert parse()["network"].port == 7070
    assert parse(file=settings)["network"].port == 3
    monkeypatch.setenv("DRAGONRT_PORT", "2")
    assert parse(file=settings)["network"].port == 2
    assert parse("--port", "1", file=settings)["network"].port == 1


def test_values_of_every_kind_come_from_a_file(file: Callable[[str], Path]) -> None:
    got = parse(
        file=file(
            'documents = "my notes"\nfollow = false\ntls = true\ntemperature = 0.5\ntop-k = 7\n'
            'max_tokens = 9\nstop = ["a", "b"]\non-loss = "wait"\nseed = 12'
        )
    )
    answers = got["answers"]
    assert got["own"].documents == Path("my notes")
    assert got["tls"] is True
    assert (answers.follow, answers.temperature, answers.top_k) == (False, 0.5, 7)
    assert (answers.max_tokens, answers.stops) == (9, ("a", "b")), "- and _ are the same"
    assert (answers.on_loss, answers.seed) == ("wait", 12)


def test_one_string_may_stand_for_a_list_of_one(file: Callable[[str], Path]) -> None:
    assert parse(file=file('stop = "END"'))["answers"].stops == ("END",)


def test_flags_and_the_environment_can_undo_a_files_truth(
    monkeypatch: pytest.MonkeyPatch, file: Callable[[str], Path]
) -> None:
    settings = file("follow = false")
    assert parse("--follow", file=settings)["answers"].follow is True
    monkeypatch.setenv("DRAGONRT_FOLLOW", "true")
    assert parse(file=settings)["answers"].follow is True


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("porty = 1", r"porty in \[device\] is no setting; there are aggregator, "),
        ("no-follow = true", r"no-follow in \[device\] is no setting"),
        ("help = true", r"help in \[device\] is no setting"),
        ("port = [1]", r"port in \[device\] must be a single value"),
        ("[device.port]", r"port in \[device\] must be a single value"),
        ("follow = 1", r"follow in \[device\] must be true or false"),
        ("port = true", r"port in \[device\] must be a value, not true or false"),
        ("[dev]", r"there is no table \[dev\]; there are \[device\]"),
        ("port", "are not TOML: .*line 2"),
    ],
)
def test_what_a_file_may_not_say_is_named(
    file: Callable[[str], Path], text: str, said: str
) -> None:
    with pytest.raises(SettingsError, match=f"settings.toml.*{said}"):
        parse(file=file(text))


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
def test_a_file_that_cannot_be_read_is_one_line(
    run: Run, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "my.toml").write_bytes(content)
    assert "my.toml" in run("--config", "my.toml", "device").line


def test_tables_of_nested_commands_are_known(run: Run, tmp_path: Path) -> None:
    (tmp_path / "dragonrt.toml").write_text("[bench.sing]\n")
    assert (
        "there is no table [bench.sing]; there are [bench.assisted], [bench.decode]"
        in run("profile").line
    )


def test_a_default_latency_gives_way_to_any_link_that_is_asked_for() -> None:
    assert EmulationOptions().or_latency("50ms").latency == "50ms"
    assert EmulationOptions(latency="1ms").or_latency("50ms").latency == "1ms"
    assert EmulationOptions(link="lte").or_latency("50ms").latency is None
    assert EmulationOptions(link_seed=3).or_latency("50ms").latency == "50ms"
