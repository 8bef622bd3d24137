"""How a client's connections are protected: TLS, and how the client proves who it is. Read from its settings once."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from tidelog.security.plain import MECHANISM as PLAIN
from tidelog.security.plain import PlainClient
from tidelog.security.scram import ScramClient, ScramMechanism

if TYPE_CHECKING:
    from tidelog.client.config import ClientConfig
    from tidelog.security.exchange import Exchange

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = (PLAIN, *(each.mechanism for each in ScramMechanism))


@dataclass(frozen=True, slots=True)
class Identity:
    """A user who can prove it."""

    mechanism: str
    username: str
    password: str

    def exchange(self) -> Exchange:
        """A new one for each connection."""
        if self.mechanism == PLAIN:
            return PlainClient(self.username, self.password)
        return ScramClient(ScramMechanism.named(self.mechanism), self.username, self.password)

    def __repr__(self) -> str:
        return f"Identity({self.mechanism}, {self.username!r})"


@dataclass(frozen=True, slots=True)
class Security:
    tls: ssl.SSLContext | None = None
    identity: Identity | None = None

    @classmethod
    def of(cls, config: ClientConfig) -> Security:
        """ValueError says which setting is wrong, missing, or would be without effect."""
        protocol = config.security_protocol
        if protocol not in _PROTOCOLS:
            raise ValueError(f"security_protocol is one of {', '.join(_PROTOCOLS)}, not {protocol!r}")
        _refuse_idle_settings(config)
        return cls(
            _tls(config) if protocol.endswith("SSL") else None,
            _identity(config) if protocol.startswith("SASL") else None,
        )


def _refuse_idle_settings(config: ClientConfig) -> None:
    """Somebody who names a certificate or a password believes to be protected by it."""
    if not config.security_protocol.endswith("SSL"):
        given = [name for name in _TLS_SETTINGS if getattr(config, name) is not None]
        if given:
            raise ValueError(f"{', '.join(given)}: needs security_protocol SSL or SASL_SSL")
    if not config.security_protocol.startswith("SASL"):
        given = [name for name in _SASL_SETTINGS if getattr(config, name) is not None]
        if given:
            raise ValueError(f"{', '.join(given)}: needs security_protocol SASL_SSL or SASL_PLAINTEXT")


_TLS_SETTINGS = (
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_key_password",
    "ssl_truststore_certificates",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
    "ssl_context",
)
_SASL_SETTINGS = ("sasl_mechanism", "sasl_username", "sasl_password")


def _identity(config: ClientConfig) -> Identity:
    if config.sasl_mechanism not in _MECHANISMS:
        raise ValueError(
            f"{config.security_protocol} needs a sasl_mechanism of {', '.join(_MECHANISMS)}, "
            f"not {config.sasl_mechanism!r}"
        )
    if not config.sasl_username or config.sasl_password is None:
        raise ValueError(f"{config.security_protocol} needs sasl_username and sasl_password")
    identity = Identity(config.sasl_mechanism, config.sasl_username, config.sasl_password)
    identity.exchange()  # refuses what the mechanism cannot carry, before anything is connected
    return identity


def _tls(config: ClientConfig) -> ssl.SSLContext:
    if config.ssl_context is not None:
        return config.ssl_context
    try:
        context = ssl.create_default_context(cafile=config.ssl_cafile, cadata=config.ssl_truststore_certificates)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the certificates to trust cannot be read ({error}): ssl_cafile names a PEM file, "
            "ssl_truststore_certificates holds the text of one"
        ) from error
    context.check_hostname = config.ssl_check_hostname
    try:
        _load_own_certificate(context, config)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"the client's certificate and key cannot be read ({error}): ssl_certfile and ssl_keyfile name PEM files "
            "that belong together, ssl_key_password opens the key if it is encrypted"
        ) from error
    return context


def _load_own_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    # A function, since without one OpenSSL would ask for the password at the terminal.
    def password() -> str:
        return config.ssl_key_password or ""

    if config.ssl_certfile is not None:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, password)
    elif config.ssl_keyfile is not None:
        raise ValueError("ssl_keyfile was given without ssl_certfile")
    elif config.ssl_keystore_key is not None and config.ssl_keystore_certificate_chain is not None:
        # The ssl module reads keys from files only. Nobody else may read this one, and it is gone a moment later.
        with NamedTemporaryFile("w", prefix="tidelog-", suffix=".pem") as private:
            private.write(f"{config.ssl_keystore_key.strip()}\n{config.ssl_keystore_certificate_chain.strip()}\n")
            private.flush()
            context.load_cert_chain(private.name, password=password)
    elif config.ssl_keystore_key is not None or config.ssl_keystore_certificate_chain is not None:
        raise ValueError("ssl_keystore_key and ssl_keystore_certificate_chain go together")
