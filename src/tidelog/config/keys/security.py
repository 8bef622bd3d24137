"""Broker keys of encryption, authentication and authorisation."""

from __future__ import annotations

from tidelog.config.definition import ConfigType, Definition, Update, at_least, one_of

_BOOL, _INT, _STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.STRING
_LIST, _CLASS, _PASSWORD = ConfigType.LIST, ConfigType.CLASS, ConfigType.PASSWORD

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _per_broker(name: str, kind: ConfigType, doc: str) -> Definition:
    return Definition(name, kind, None, doc, update=Update.PER_BROKER)


SECURITY_KEYS = (
    Definition(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether TLS clients show a certificate: required, requested or none.",
        one_of("none", "requested", "required"),
        Update.PER_BROKER,
    ),
    Definition(
        "ssl.enabled.protocols",
        _LIST,
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions accepted.",
        one_of("TLSv1.2", "TLSv1.3"),
        Update.PER_BROKER,
    ),
    Definition("ssl.cipher.suites", _LIST, (), "Cipher suites accepted; empty leaves it to OpenSSL."),
    Definition(
        "ssl.keystore.type",
        _STRING,
        "PEM",
        "Form of the key store; only PEM is read.",
        one_of("PEM"),
        Update.PER_BROKER,
    ),
    _per_broker("ssl.keystore.location", _STRING, "PEM file with the broker's certificate chain and key."),
    _per_broker("ssl.keystore.password", _PASSWORD, "Kafka's key store password; a PEM file has ssl.key.password."),
    _per_broker("ssl.keystore.certificate.chain", _PASSWORD, "The certificate chain itself, as PEM text."),
    _per_broker("ssl.keystore.key", _PASSWORD, "The private key itself, as PEM text."),
    _per_broker("ssl.key.password", _PASSWORD, "Password of the private key."),
    Definition(
        "ssl.truststore.type",
        _STRING,
        "PEM",
        "Form of the trust store; only PEM is read.",
        one_of("PEM"),
        Update.PER_BROKER,
    ),
    _per_broker("ssl.truststore.location", _STRING, "PEM file with the certificates that are trusted."),
    _per_broker("ssl.truststore.password", _PASSWORD, "Kafka's trust store password; a PEM file needs none."),
    _per_broker("ssl.truststore.certificates", _PASSWORD, "The trusted certificates themselves, as PEM text."),
    Definition(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "https makes this broker check the host name of the brokers it connects to; empty does not.",
        one_of("https", ""),
        Update.PER_BROKER,
    ),
    Definition(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "Rules that make a user name from a certificate's subject.",
    ),
    Definition(
        "sasl.enabled.mechanisms",
        _LIST,
        ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SASL mechanisms offered to clients.",
        one_of(*SASL_MECHANISMS),
        Update.PER_BROKER,
    ),
    Definition(
        "sasl.mechanism.inter.broker.protocol",
        _STRING,
        "SCRAM-SHA-256",
        "SASL mechanism between brokers.",
        one_of(*SASL_MECHANISMS),
        Update.PER_BROKER,
    ),
    _per_broker("sasl.jaas.config", _PASSWORD, "User names and passwords of a SASL listener, in Kafka's JAAS form."),
    Definition(
        "sasl.server.max.receive.size",
        _INT,
        524_288,
        "The largest SASL message accepted from a client that has not authenticated yet.",
        at_least(1),
    ),
    Definition(
        "authorizer.class.name",
        _CLASS,
        "",
        "Empty lets everyone do everything; any class name turns on Tidelog's own ACLs.",
    ),
    Definition("super.users", _STRING, "", "Principals that no ACL restricts, as User:name;User:name."),
    Definition(
        "allow.everyone.if.no.acl.found",
        _BOOL,
        False,
        "Whether a resource without any ACL is open to everyone.",
    ),
)
