"""Certificates for tests: an authority, and what it signs. Made by OpenSSL's command line, and good for a day."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Certificate(NamedTuple):
    certfile: Path
    keyfile: Path
    bothfile: Path
    """Key and certificate in one, as Kafka's PEM keystores want them."""


class Authority:
    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.certfile = directory / "ca.pem"
        self._keyfile = directory / "ca.key"
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-keyout", self._keyfile, "-out", self.certfile, "-days", "1"),
            *("-subj", "/CN=Test authority", "-addext", "basicConstraints=critical,CA:TRUE"),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def issue(self, name: str, alternative_names: str = "") -> Certificate:
        """`alternative_names` as OpenSSL writes them, such as IP:127.0.0.1,DNS:localhost."""
        made = Certificate(*(self._directory / f"{name}.{ending}" for ending in ("pem", "key", "both.pem")))
        request = self._directory / f"{name}.csr"
        _openssl("req", *_NEW_KEY, "-keyout", made.keyfile, "-out", request, "-subj", f"/CN={name}")
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternative_names or f'DNS:{name}'}\n")
        _openssl(
            *("x509", "-req", "-in", request, "-CA", self.certfile, "-CAkey", self._keyfile),
            *("-CAcreateserial", "-days", "1", "-extfile", extensions, "-out", made.certfile),
        )
        made.bothfile.write_text(made.keyfile.read_text() + made.certfile.read_text())
        return made


_NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed:\n{done.stderr}")
