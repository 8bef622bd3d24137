"""Runs a broker in the foreground until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from typing import TYPE_CHECKING

from tidelog import __version__
from tidelog.broker.app import Broker
from tidelog.config.broker import BrokerConfig
from tidelog.config.definition import ConfigError
from tidelog.net.listener import CannotListenError
from tidelog.storage.errors import StoreError
from tidelog.znodes.errors import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger("tidelog.broker")

GC_THRESHOLDS = (20_000, 20, 20)
"""Requests leave no cycles behind, so looking for them every few hundred objects, as is the default, finds nothing."""

EXIT_OK, EXIT_FAILED, EXIT_BAD_CONFIG = 0, 1, 2


def run_broker(properties: Mapping[str, str]) -> int:
    """Runs a broker with these properties; returns the process's exit code."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    try:
        config = BrokerConfig.parse(properties)
    except ConfigError as error:
        logger.error("%s", error)
        return EXIT_BAD_CONFIG
    _raise_open_files_limit()
    try:
        import uvloop  # noqa: PLC0415 -- only a broker needs it

        uvloop.run(_serve(config))
    except ConfigError as error:
        logger.error("%s", error)
        return EXIT_BAD_CONFIG
    except (CannotListenError, StoreError, ZnodeError, OSError) as error:
        logger.error("the broker cannot run: %s", error)
        return EXIT_FAILED
    return EXIT_OK


def _raise_open_files_limit() -> None:
    """Takes the open files that the system allows: the usual soft limit is meant for programs that use select."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _serve(config: BrokerConfig) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with Broker(config) as broker:
        # What is alive now stays alive: the collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        addresses = ", ".join(endpoint.address for endpoint in broker.endpoints.advertised)
        logger.info("tidelog %s ready: broker %d listens on %s", __version__, broker.broker_id, addresses)
        await stop.wait()
        logger.info("stopping")
    logger.info("stopped cleanly")
