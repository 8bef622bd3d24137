"""Children of a nursery behave as programs that Python runs itself, and nobody is left behind."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import subprocess
import sys
import textwrap
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from tidelog.pipelines.session import nursery as nursery_module
from tidelog.pipelines.session.from_nursery import ANSWERED_WITHIN_S, LENGTH, address
from tidelog.pipelines.session.nursery import Nursery, Start, suits
from tidelog.pipelines.session.nursery_process import NurseryProcess
from tidelog.pipelines.session.python import NURSERY, python_shim
from tidelog.testing import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Environment = dict[str, str]

SPARK_HOME = Path(pyspark.__file__).parent
IS_CHILD = "b'tidelog.pipelines.session.nursery' in open('/proc/self/cmdline', 'rb').read().split(bytes(1))"
SILENT, FULL = (f"tidelog-test-{name}-{os.getpid()}" for name in ("silent", "full"))
LIVE = "import os, signal; print(os.getpid(), os.getppid(), flush=True); "


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def driver(modules: Path) -> Environment:
    """The environment of the process that has the session."""
    own = {key: value for key, value in os.environ.items() if key not in {"PYTEST_CURRENT_TEST", "PYTHONUNBUFFERED"}}
    return {**own, "PYTHONPATH": f"{modules}:/b c"}


@pytest.fixture(scope="module")
def process(driver: Environment) -> Iterator[NurseryProcess]:
    process = serving(driver)
    yield process
    process.end()


def serving(driver: Environment) -> NurseryProcess:
    """A nursery that has loaded everything: before that, whoever asks may become tired of waiting."""
    process = NurseryProcess(sys.executable, driver)
    with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionResetError):
        connection.settimeout(60)
        connection.connect(address(process.name))
        connection.sendall(LENGTH.pack(0))
        assert connection.recv(1) == b"", "this is not how one asks"
    return process


@pytest.fixture
def asking(driver: Environment, process: NurseryProcess) -> Environment:
    """As Spark starts Python, which leads to the nursery."""
    return {**driver, "PYTHONUNBUFFERED": "YES", "SPARK_REUSE_WORKER": "1", NURSERY: process.name}


@pytest.fixture
def shim(tmp_path: Path) -> str:
    return python_shim(sys.executable, tmp_path / "cache", SPARK_HOME)


@pytest.fixture
def write(modules: Path) -> Callable[[str], None]:
    """Writes the module `program`. What was compiled of the one before passes for it if that is of the same size and
    second."""
    program = modules / "program.py"

    def write(code: str) -> None:
        Path(cache_from_source(str(program))).unlink(missing_ok=True)
        program.write_text(textwrap.dedent(code), encoding="utf-8")

    return write


@pytest.fixture
def run(shim: str, write: Callable[[str], None]) -> Callable[[str, Environment], str]:
    """What a program prints."""

    def run(code: str, environment: Environment) -> str:
        write(code)
        return subprocess.run(
            [shim, "-m", "program"], env=environment, capture_output=True, text=True, check=True
        ).stdout

    return run


PROGRAMS = {
    "arguments, directory and path": """
        import os, sys
        print(sys.argv[1:], sys.argv[0] == __file__, __name__, os.getcwd(), sys.path, sys.flags, sys.executable)
    """,
    "environment": f"import os; del os.environ['{NURSERY}']; print(sorted(os.environ.items()))",
    "what is read and written": "import sys; print(sys.stdin.read()); print('oh', file=sys.stderr)",
    "bytes": "import os; os.write(1, os.read(0, 100)); os.write(2, bytes([0, 255]))",
    "prints, and is gone": "import os, sys; print('here'); sys.stderr.write('there'); os._exit(0)",
    "an end": "import sys; sys.exit(7)",
    "an error": "raise ValueError('no')",
    "a message as the end": "import sys; sys.exit('that was it')",
    "things to do at the end": "import atexit; atexit.register(print, 'bye'); print('hello')",
    "hashing": "print(hash('x'), {*'abcdefgh'})",
    "signals": "import signal; print(signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD))",
    "open files": "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4])",
    "limits": "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_child_does_what_python_does(
    name: str, asking: Environment, shim: str, write: Callable[[str], None], tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    write(f"open('{seen}', 'w').write(str({IS_CHILD}))\n" + textwrap.dedent(PROGRAMS[name]))

    def ran(environment: Environment) -> tuple[int, bytes, list[bytes]]:
        ran = subprocess.run(
            ["/bin/sh", "-c", 'ulimit -Sn 300; exec "$@"', "sh", shim, "-m", "program", "one", "two three"],
            env={**asking, "PYTHONHASHSEED": "0", **environment},
            input=b"a line",
            capture_output=True,
            timeout=60,
            check=False,
        )
        # Of a traceback the last two lines: who called is not the program's.
        return ran.returncode, ran.stdout, ran.stderr.splitlines()[-2:]

    forked = ran({})
    assert seen.read_text() == "True"
    assert forked == ran({NURSERY: ""})
    assert seen.read_text() == "False"


def test_a_child_has_everything_loaded(asking: Environment, run: Callable[[str, Environment], str]) -> None:
    loaded = 'import sys; print("tidelog.pipelines.source.reading" in sys.modules, "pyspark.worker" in sys.modules)'
    assert run(loaded, asking) == "True True\n"


def test_children_do_not_draw_the_same_numbers(asking: Environment, run: Callable[[str, Environment], str]) -> None:
    draw = "import numpy, random; print(random.random(), numpy.random.random())"
    assert len({*run(draw, asking).split(), *run(draw, asking).split()}) == 4


def test_a_child_finds_what_was_installed_meanwhile(
    asking: Environment, modules: Path, run: Callable[[str, Environment], str]
) -> None:
    assert run("import sys; print(sys.path_importer_cache.get('/b c', 0))", asking)
    (modules / "newcomer").mkdir()
    (modules / "newcomer" / "__init__.py").write_text("here = 1")
    assert run(f"import newcomer; print(newcomer.here, {IS_CHILD})", asking) == "1 True\n"


def test_who_asked_is_ended_and_the_child_with_it(asking: Environment, shim: str, write: Callable[[str], None]) -> None:
    write(LIVE + "signal.pause()")
    with started(shim, asking) as (program, child, _nursery):
        assert child != program.pid
        program.terminate()
        assert program.wait(60) == -signal.SIGTERM
        eventually(lambda: not Path(f"/proc/{child}").exists(), "the end of the child")


def test_a_child_that_is_killed_is_told_of_as_shells_do(
    asking: Environment, shim: str, write: Callable[[str], None]
) -> None:
    write("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    ran = subprocess.run([shim, "-m", "program"], env=asking, check=False)
    assert ran.returncode == 128 + signal.SIGKILL


@pytest.mark.parametrize("how", ["killed", "ended"])
def test_who_asked_stays_as_long_as_the_child_without_a_nursery(
    how: str, driver: Environment, asking: Environment, shim: str, write: Callable[[str], None]
) -> None:
    write(LIVE + "input(); print('still here')")
    process = serving(driver)
    with started(shim, {**asking, NURSERY: process.name}) as (program, child, nursery):
        assert nursery == process._process.pid
        if how == "killed":
            os.kill(nursery, signal.SIGKILL)
        process.end()
        assert Path(f"/proc/{child}").exists()
        assert program.communicate(b"\n", timeout=60)[0] == b"still here\n"
        assert program.returncode == 1, "how it ended is not known"
    assert process._process.poll() is not None


@contextlib.contextmanager
def started(shim: str, environment: Environment) -> Iterator[tuple[subprocess.Popen[bytes], int, int]]:
    """The program, its child, and the parent of that."""
    program = subprocess.Popen(
        [shim, "-m", "program"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    with program:
        assert program.stdout is not None
        try:
            child, parent = map(int, program.stdout.readline().split())
            yield program, child, parent
        finally:
            program.kill()


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
def test_nonsense_is_passed_over(process: NurseryProcess, message: bytes) -> None:
    for files in ([], [0, 1], [0, 1, 2]):
        with socket.socket(socket.AF_UNIX) as connection, contextlib.suppress(ConnectionResetError):
            connection.connect(address(process.name))
            socket.send_fds(connection, [message or b"\0"], files)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1) == b""


def test_others_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    user = os.getuid()
    with ours, theirs:
        monkeypatch.setattr(os, "getuid", lambda: user + 1)
        with pytest.raises(PermissionError):
            nursery_module.receive(ours)


def test_without_a_nursery_it_is_python_itself(asking: Environment, run: Callable[[str, Environment], str]) -> None:
    assert run(f"print({IS_CHILD})", {**asking, NURSERY: "nobody"}) == "False\n"


def test_one_that_does_not_answer_is_not_waited_for(
    asking: Environment, shim: str, write: Callable[[str], None], tmp_path: Path
) -> None:
    """Not for as long as Spark waits for Python, that is; and a late answer finds nobody."""
    assert ANSWERED_WITHIN_S < 10 / 2
    write(f"open('{tmp_path}/seen', 'w').write(str({IS_CHILD}))")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(address(SILENT))
        silent.listen()
        subprocess.run([shim, "-m", "program"], env={**asking, NURSERY: SILENT}, check=True)
        assert (tmp_path / "seen").read_text() == "False"
        connection, _address = silent.accept()
        with connection, pytest.raises(BrokenPipeError):
            connection.sendall(b"+")


def test_without_a_child_it_is_python_itself(
    asking: Environment,
    shim: str,
    write: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A machine that has no process left to give has one all the same: the one that asks."""

    def fork() -> int:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr(os, "fork", fork)
    monkeypatch.setattr(nursery_module, "suits", lambda *_: True)
    write(f"print({IS_CHILD})")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address(FULL))
        listener.listen()
        nursery = Nursery(listener)
        environment = {**asking, NURSERY: FULL}
        with subprocess.Popen([shim, "-m", "program"], env=environment, stdout=subprocess.PIPE) as program:
            assert nursery._take_in() is None
            assert program.communicate(timeout=60)[0] == b"False\n"
        for end in (nursery._woken, nursery._wakes, nursery._selector):
            end.close()


def test_one_who_leaves_as_its_child_ends_is_no_trouble() -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        nursery = Nursery(listener)
        nursery._left(12345)
        for end in (nursery._woken, nursery._wakes, nursery._selector):
            end.close()


def test_what_is_not_a_module_is_run_by_python_itself(asking: Environment, shim: str) -> None:
    ran = subprocess.run([shim, "-c", f"print({IS_CHILD})"], env=asking, capture_output=True, check=True)
    assert ran.stdout == b"False\n"


def test_another_seed_is_another_python(asking: Environment, run: Callable[[str, Environment], str]) -> None:
    assert run(f"print({IS_CHILD})", {**asking, "PYTHONHASHSEED": "5"}) == "False\n"


JAR = "/spark/jars/spark-core_2.13-4.3.0.jar"


@pytest.mark.parametrize(
    ("asked", "own", "suit"),
    [
        ({}, {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, True),
        ({"PYTHONHASHSEED": "random"}, {"PYTHONHASHSEED": "0"}, True),
        ({"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}, True),
        ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "0"}, False),
        ({"OMP_NUM_THREADS": "4"}, {"OMP_NUM_THREADS": "1"}, False),
        ({"SPARK_REUSE_WORKER": "1", "JAVA_HOME": "/j", "SHLVL": "2"}, {"_": "python", "SHLVL": "1"}, True),
        ({"PYTHON_UNIX_DOMAIN_ENABLED": "true", "PYTHON_WORKER_FACTORY_SECRET": "x"}, {}, True),
        ({"PYTHON_GIL": "0"}, {}, False),
        ({"PYSPARK_ENABLE_NAMEDTUPLE_PATCH": "1"}, {}, False),
        ({"TIDELOG_PURE": "1"}, {}, False),
        ({"PYTHONUNBUFFERED": "1"}, {"PYTHONUNBUFFERED": "YES"}, True),
        ({}, {"PYTHONUNBUFFERED": "YES"}, False),
        ({"PYTHONPATH": f"{JAR}:{JAR}:/x"}, {"PYTHONPATH": "/x"}, True),
        ({"PYTHONPATH": JAR}, {"PYTHONPATH": ""}, True),
        ({"PYTHONPATH": f"{JAR}:/patched"}, {}, False),
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
    asked: Environment, own: Environment, suit: bool
) -> None:
    start = Start("program", [], asked, "/here", {}, [])
    assert suits(start, own, "/here") == suit
    assert not suits(start, own, "/there")


def test_nothing_is_left_of_a_process_that_is_killed() -> None:
    code = """
        import os, signal, sys
        from tidelog.pipelines.session.nursery_process import nursery
        print(nursery(sys.executable), flush=True)
        signal.pause()
    """
    owner = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().decode().strip()
        assert is_there(name)
        owner.kill()
    eventually(lambda: not is_there(name), "the end of the nursery")


def is_there(name: str) -> bool:
    return f"@{name}\n" in Path("/proc/net/unix").read_text()
