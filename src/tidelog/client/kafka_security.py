"""Security settings as Java's clients and librdkafka name them, turned into this client's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_NAMES = {
    "ssl.truststore.location": "ssl.cafile",
    "ssl.ca.location": "ssl.cafile",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.keystore.location": "ssl.certfile",
    "ssl.certificate.location": "ssl.certfile",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keyfile",
    "ssl.key.pem": "ssl.keystore.key",
    "sasl.mechanisms": "sasl.mechanism",
}

_LOGIN_MODULES = ("PlainLoginModule", "ScramLoginModule")
_JAAS = re.compile(r"\s*(?P<module>[\w.]+)\s+required\b(?P<options>.*);\s*", re.DOTALL)
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([^\s;"']+))""")


def translate_security(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings under the names of ClientConfig, dots still in them; ValueError for what has no counterpart."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if key in {"ssl.truststore.type", "ssl.keystore.type"}:
            if str(value).upper() != "PEM":
                raise ValueError(
                    f"{key}={value}: only PEM can be read; convert it, for example with "
                    "`keytool -importkeystore -deststoretype PKCS12` and then `openssl pkcs12`"
                )
        elif key == "ssl.endpoint.identification.algorithm":
            found["ssl.check.hostname"] = _checks_host(str(value).strip())
        elif key == "sasl.jaas.config":
            found["sasl.username"], found["sasl.password"] = _credentials(str(value))
        else:
            found[_OTHER_NAMES.get(key, key)] = value
    if isinstance(found.get("security.protocol"), str):
        found["security.protocol"] = found["security.protocol"].upper()
    return found


def _checks_host(algorithm: str) -> bool:
    if algorithm.lower() not in {"", "none", "https"}:
        raise ValueError(f"ssl.endpoint.identification.algorithm is https or empty, not {algorithm!r}")
    return algorithm.lower() == "https"


def _credentials(jaas: str) -> tuple[str, str]:
    """User name and password; what is wrong is told without showing them."""
    entry = _JAAS.fullmatch(jaas)
    if entry is None or entry["module"].rpartition(".")[2] not in _LOGIN_MODULES:
        raise ValueError(f"sasl.jaas.config is one entry, of {' or '.join(_LOGIN_MODULES)}, that ends in a semicolon")
    options = {
        name: re.sub(r"\\(.)", r"\1", quoted) or single or bare
        for name, quoted, single, bare in _JAAS_OPTION.findall(entry["options"])
    }
    if "username" not in options or "password" not in options:
        raise ValueError("sasl.jaas.config names no username and password")
    return options["username"], options["password"]
