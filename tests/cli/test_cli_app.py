from __future__ import annotations

import subprocess
import sys

import click
import pytest

import tidelog
from tidelog.cli.app import COMMANDS, app
from tidelog.cli.running import run


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    found = [path]
    for name in command.list_commands(context):
        sub = command.get_command(context, name)
        assert sub is not None
        found += leaves(sub, (*path, name))
    return found


@pytest.mark.parametrize("path", leaves(app), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*path, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: tidelog")
    assert "--help" in out


def test_help_names_every_command_and_loads_none() -> None:
    code = (
        "import sys; sys.argv = ['tidelog', '--help']\n"
        "from tidelog.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'asyncio', 'rich', 'uvloop', 'tidelog.wire', 'tidelog.cli.topic', 'tidelog.errors'}\n"
        "loaded = sorted(heavy & set(sys.modules))\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for name in COMMANDS:
        assert f"  {name} " in done.stdout
    assert "Exit codes" in done.stdout


def test_importing_the_client_costs_next_to_nothing() -> None:
    code = (
        "import sys, tidelog.client\n"
        "heavy = {'asyncio', 'click', 'rich', 'cramjam', 'tidelog.wire', 'tidelog.records'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert tidelog.client.Producer.__name__ == 'Producer'\n"
        "assert set(tidelog.client.__all__) == set(tidelog.client._HOMES)\n"
        "assert all(getattr(tidelog.client, name) for name in tidelog.client.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_module_is_the_program() -> None:
    done = subprocess.run([sys.executable, "-m", "tidelog", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"tidelog {tidelog.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["brokr"], "there is no command 'brokr': did you mean 'broker'?"),
        (["zzz"], "there is no command 'zzz': there are broker, topic"),
        (["topic", "list", "--nonsense"], "no such option '--nonsense' (see tidelog topic list --help)"),
        (["topic", "create"], "missing argument 'NAME' (see tidelog topic create --help)"),
        (["topic", "create", "t", "--partitions", "0"], "0 is not in the range x>=1"),
        (["topic", "create", "t", "--config", "x"], "--config takes KEY=VALUE, not 'x'"),
        (["topic", "list", "--bootstrap", "a:b:c"], "write IPv6 addresses as [address]:port"),
        (["consume", "t", "--from", "then"], "--from: 'then' is not earliest"),
        (["offsets", "t", "--at", "then"], "--at: 'then' is not a time"),
        (["broker", "--set", "nonsense"], "--set 'nonsense' must be key=value"),
        (["broker", "--config", "no such file"], "Configuration file no such file cannot be read"),
        (["topic", "config", "set", "t"], "name at least one KEY=VALUE, or --unset KEY"),
        (["produce", "t", "--key-separator", ""], "--key-separator needs at least one character"),
    ],
)
def test_a_bad_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("tidelog: ")
    assert complaint in captured.err


@pytest.mark.parametrize(
    "arguments",
    [["topic", "list"], ["consume", "t"], ["offsets", "t"], ["cluster", "describe"], ["topic", "create", "t"]],
    ids=" ".join,
)
def test_no_broker_is_one_line_and_exit_code_3(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments, "--bootstrap", "127.0.0.1:1"]) == 3
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "127.0.0.1:1 refused the connection" in captured.err
    assert "start one with `tidelog broker`" in captured.err


def test_a_mistake_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_arguments: object, **_named: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(app, "main", broken)
    with pytest.raises(ZeroDivisionError):
        run(["topic", "list"])
