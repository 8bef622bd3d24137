"""Every client that Python and Debian offer, and the marks that run a test with each of them."""

from __future__ import annotations

import pytest
from aiokafka_driver import AiokafkaDriver
from client_drivers import CODECS, ClientDriver
from confluent_driver import ConfluentDriver
from kafka_python_driver import KafkaPythonDriver
from kcat_driver import KcatDriver
from tidelog_driver import TidelogDriver

LIBRARIES: tuple[ClientDriver, ...] = (ConfluentDriver(), KafkaPythonDriver(), AiokafkaDriver(), TidelogDriver())
CLIENTS: tuple[ClientDriver, ...] = (*LIBRARIES, KcatDriver())

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
every_library = pytest.mark.parametrize("client", LIBRARIES, ids=lambda client: client.name)
every_codec = pytest.mark.parametrize("codec", CODECS)
