"""Stand-ins for the outside world, and what tests of a broker need."""

from tidelog.testing.broker_process import BrokerProcess, BrokerProcessError
from tidelog.testing.eventually import eventually

__all__ = ["BrokerProcess", "BrokerProcessError", "eventually"]
