"""Children of a nursery behave as programs that Python runs itself, and nobody is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tidelog.pipelines.session.from_nursery import LENGTH
from tidelog.pipelines.session.nursery import suits
from tidelog.pipelines.session.nursery_process import NurseryProcess
from tidelog.pipelines.session.python import NURSERY, python_shim
from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SPARK_HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
"""Of the nursery as of those that ask it: pytest's differs from test to test."""
IS_CHILD = "b'tidelog.pipelines.session.nursery' in open('/proc/self/cmdline', 'rb').read().split(bytes(1))"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """Of a nursery of this process."""
    process = NurseryProcess(ENVIRONMENT)
    yield str(process.place)
    process.end()
    assert not process.place.parent.exists()


@pytest.fixture
def shim(tmp_path: Path) -> str:
    return python_shim(sys.executable, tmp_path / "cache", SPARK_HOME)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a module `program` and gives the directory that it is in."""

    def write(code: str) -> Path:
        directory = tmp_path / "modules"
        directory.mkdir()
        (directory / "program.py").write_text(textwrap.dedent(code), encoding="utf-8")
        return directory

    return write


PROGRAMS = {
    "arguments, directory and path": """
        import os, sys
        print(sys.argv[1:], sys.argv[0] == __file__, __name__, os.getcwd(), sys.path, sys.flags, sys.executable)
    """,
    "environment": f"import os; del os.environ['{NURSERY}']; print(sorted(os.environ.items()))",
    "what is read and written": "import sys; print(sys.stdin.read()); print('oh', file=sys.stderr)",
    "bytes": "import os; os.write(1, os.read(0, 100)); os.write(2, bytes([0, 255]))",
    "an end": "import sys; sys.exit(7)",
    "an error": "raise ValueError('no')",
    "a message as the end": "import sys; sys.exit('that was it')",
    "things to do at the end": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "hashing": "print(hash('x'), {*'abcdefgh'})",
    "signals": "import signal; print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD))",
    "open files": "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4])",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_child_does_what_python_does(name: str, place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program(f"open('is_child', 'w').write(str({IS_CHILD}))\n" + textwrap.dedent(PROGRAMS[name]))

    def run(environment: dict[str, str]) -> tuple[int, bytes, bytes]:
        ran = subprocess.run(
            [shim, "-m", "program", "one", "two three"],
            env={
                **ENVIRONMENT,
                "PYTHONHASHSEED": "0",
                "PYTHONUNBUFFERED": "YES",
                "PYTHONPATH": "/a:/b c",
                **environment,
            },
            cwd=directory,
            input=b"a line",
            capture_output=True,
            timeout=60,
            check=False,
        )
        return ran.returncode, ran.stdout, without_frames_of_runpy(ran.stderr)

    forked = run({NURSERY: place})
    assert (directory / "is_child").read_text() == "True"
    assert forked == run({NURSERY: ""})
    assert (directory / "is_child").read_text() == "False"


def without_frames_of_runpy(told: bytes) -> bytes:
    """Of a traceback its last two lines: who called is not the program's."""
    return b"\n".join(told.splitlines()[-2:])


def test_a_child_has_everything_loaded(place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program(f"""
        import sys
        print({IS_CHILD}, "tidelog.pipelines.source.reading" in sys.modules, "pyspark.worker" in sys.modules)
    """)
    ran = subprocess.run(
        [shim, "-m", "program"], env={**ENVIRONMENT, NURSERY: place}, cwd=directory, capture_output=True, check=True
    )
    assert ran.stdout == b"True True True\n"


def test_children_do_not_draw_the_same_numbers(place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program("import numpy, random; print(random.random(), numpy.random.random())")
    drawn = {
        number
        for _ in range(2)
        for number in subprocess.run(
            [shim, "-m", "program"], env={**ENVIRONMENT, NURSERY: place}, cwd=directory, capture_output=True, check=True
        ).stdout.split()
    }
    assert len(drawn) == 4


def test_who_asked_is_ended_and_the_child_with_it(place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program("import os, signal; print(os.getpid(), flush=True); signal.pause()")
    asking = subprocess.Popen(
        [shim, "-m", "program"], env={**ENVIRONMENT, NURSERY: place}, cwd=directory, stdout=subprocess.PIPE
    )
    assert asking.stdout is not None
    with asking.stdout:
        child = int(asking.stdout.readline())
        assert child != asking.pid
        asking.terminate()
        assert asking.wait(60) == -signal.SIGTERM
        eventually(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")


def test_a_child_that_is_killed_is_told_of_as_shells_do(place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    ran = subprocess.run([shim, "-m", "program"], env={**ENVIRONMENT, NURSERY: place}, cwd=directory, check=False)
    assert ran.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\0\0", id="half a length"),
        pytest.param(LENGTH.pack(10) + b"{}", id="less than was said"),
        pytest.param(LENGTH.pack(2**32 - 1) + b"{}", id="more than there may be"),
        pytest.param(LENGTH.pack(2) + b"{]", id="no JSON"),
        pytest.param(LENGTH.pack(2) + b"[]", id="not what is asked"),
        pytest.param(LENGTH.pack(2) + b"{}", id="nothing to do"),
    ],
)
def test_nonsense_is_passed_over(place: str, message: bytes) -> None:
    for files in ([], [0, 1], [0, 1, 2]):
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionResetError):
            connection.connect(place)
            socket.send_fds(connection, [message or b"\0"], files)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


def test_without_a_nursery_it_is_python_itself(tmp_path: Path, shim: str, program: Callable[[str], Path]) -> None:
    directory = program(f"print({IS_CHILD})")
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "left"))
    left.close()
    for gone in ("left", "never"):
        ran = subprocess.run(
            [shim, "-m", "program"],
            env={**ENVIRONMENT, NURSERY: str(tmp_path / gone)},
            cwd=directory,
            capture_output=True,
            check=True,
        )
        assert ran.stdout == b"False\n"


def test_what_is_not_a_module_is_run_by_python_itself(place: str, shim: str) -> None:
    ran = subprocess.run(
        [shim, "-c", f"print({IS_CHILD})"], env={**ENVIRONMENT, NURSERY: place}, capture_output=True, check=True
    )
    assert ran.stdout == b"False\n"


def test_another_seed_is_another_python(place: str, shim: str, program: Callable[[str], Path]) -> None:
    directory = program(f"print({IS_CHILD})")
    ran = subprocess.run(
        [shim, "-m", "program"],
        env={**ENVIRONMENT, NURSERY: place, "PYTHONHASHSEED": "5"},
        cwd=directory,
        capture_output=True,
        check=True,
    )
    assert ran.stdout == b"False\n"


@pytest.mark.parametrize(
    ("asked", "own", "suit"),
    [
        ({}, {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, True),
        ({"PYTHONHASHSEED": "random"}, {"PYTHONHASHSEED": "0"}, True),
        ({"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, True),
        ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "0"}, False),
        ({"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "1"}, False),
        ({"PYTHONPATH": "/x", "PYTHONUNBUFFERED": "YES", "PYTHON_UNIX_DOMAIN_ENABLED": "true"}, {}, True),
        ({"SPARK_REUSE_WORKER": "1", "JAVA_HOME": "/j", "SHLVL": "2"}, {"_": "python", "SHLVL": "1"}, True),
        ({"LANG": "C", "TZ": "UTC"}, {"LANG": "C", "TZ": "UTC"}, True),
        ({"TZ": "Asia/Tokyo"}, {"TZ": "UTC"}, False),
        ({"OPENBLAS_NUM_THREADS": "1"}, {}, False),
        ({}, {"ARROW_DEFAULT_MEMORY_POOL": "system"}, False),
        ({"PYTHONDEVMODE": "1"}, {}, False),
        ({}, {"PYTHONOPTIMIZE": "2"}, False),
        ({"PYTHONOPTIMIZE": ""}, {}, True),
    ],
)
def test_a_child_is_given_only_to_those_whose_python_would_be_the_same(
    asked: dict[str, str], own: dict[str, str], suit: bool
) -> None:
    assert suits(asked, own) == suit


def test_nothing_is_left_of_a_process_that_is_killed() -> None:
    code = """
        import os, signal
        from tidelog.pipelines.session.nursery_process import nursery
        print(nursery(), flush=True)
        signal.pause()
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    with owner.stdout:
        place = Path(owner.stdout.readline().decode().strip())
    assert place.exists()
    owner.kill()
    owner.wait(60)
    eventually(lambda: not place.parent.exists(), "the end of the nursery")


def test_a_nursery_that_was_killed_is_cleaned_up_after(shim: str, program: Callable[[str], Path]) -> None:
    directory = program("import os; print(os.getppid())")
    process = NurseryProcess(ENVIRONMENT)
    environment = {**ENVIRONMENT, NURSERY: str(process.place)}
    asked = subprocess.run([shim, "-m", "program"], env=environment, cwd=directory, capture_output=True, check=True)
    os.kill(int(asked.stdout), signal.SIGKILL)
    process.end()
    assert not process.place.parent.exists()
