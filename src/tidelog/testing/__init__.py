"""Stand-ins for the outside world, and what tests of a broker need."""

from tidelog.testing.broker_process import BrokerProcess, BrokerProcessError, StartBroker
from tidelog.testing.eventually import eventually
from tidelog.testing.raw_client import ConnectionEnded, RawClient

__all__ = ["BrokerProcess", "BrokerProcessError", "ConnectionEnded", "RawClient", "StartBroker", "eventually"]
