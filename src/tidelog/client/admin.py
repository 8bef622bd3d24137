"""Looks after a cluster: topics, settings, groups, access, quotas, passwords, transactions, and where partitions are.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("orders", partitions=6)

Calls about one thing raise BrokerError when the broker refuses. Calls about several return `Outcomes`: for each the
result or the BrokerError that stood in the way, and `results()` for whoever wants all or an exception. NotSupported
says that the broker cannot be asked for this at all.
"""

from __future__ import annotations

from tidelog.client.administration.access import AccessAdmin
from tidelog.client.administration.brokers import BrokerAdmin
from tidelog.client.administration.configs import ConfigAdmin
from tidelog.client.administration.credentials import CredentialAdmin
from tidelog.client.administration.groups import GroupAdmin
from tidelog.client.administration.placement import PlacementAdmin
from tidelog.client.administration.quotas import QuotaAdmin
from tidelog.client.administration.topics import TopicAdmin
from tidelog.client.administration.transactions import TransactionAdmin


class Admin(
    TopicAdmin,
    ConfigAdmin,
    GroupAdmin,
    PlacementAdmin,
    BrokerAdmin,
    TransactionAdmin,
    AccessAdmin,
    QuotaAdmin,
    CredentialAdmin,
):
    """`async with` connects; leaving closes every connection. Each area has a module in `administration`."""
