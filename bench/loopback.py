"""What loopback itself gives: a process that sends a file over a socket with sendfile, and nothing else.

Run as a program with FILE and the number of bytes: prints its port, and sends the file over and over to the first who
connects.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bench.load import drain

SENDFILE_BYTES = 1 << 20


def megabytes_per_second(file: Path, byte_count: int, seconds: float) -> float:
    command = [sys.executable, "-m", "bench.loopback", str(file), str(byte_count)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as sock:
            bytes_per_second = drain(sock, byte_count, seconds)
    return bytes_per_second / 1e6


def send(path: Path, byte_count: int) -> None:
    file_bytes = path.stat().st_size
    with path.open("rb") as file, socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        sock, _ = server.accept()
        with sock:
            source, target = file.fileno(), sock.fileno()
            position = 0
            left = byte_count
            with suppress(BrokenPipeError, ConnectionResetError):  # the receiver may have had enough
                while left:
                    sent = os.sendfile(target, source, position, min(SENDFILE_BYTES, left, file_bytes - position))
                    left -= sent
                    position = (position + sent) % file_bytes


if __name__ == "__main__":
    send(Path(sys.argv[1]), int(sys.argv[2]))
