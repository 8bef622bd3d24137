"""DescribeConfigs (32), v1-4. Shows the settings of topics and brokers, and where each value comes from.

v1 sources and synonyms · v3 types and documentation · v4 flexible
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.errors import BrokerError
from tidelog.handlers.config_resources import describe
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from tidelog.config.describe import ConfigEntry


def handle(ctx: Context, req: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_describe(ctx, req, resource) for resource in req.resources]
    )


def _describe(ctx: Context, req: DescribeConfigsRequest, resource: DescribeConfigsResource) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        # An empty list of keys means all of them too: librdkafka sends one.
        entries = describe(ctx, resource.resource_type, resource.resource_name, resource.configuration_keys or None)
        result.configs = [_entry(entry, req) for entry in entries]
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _entry(entry: ConfigEntry, req: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if req.include_synonyms
        else [],
        config_type=entry.type,
        documentation=entry.doc if req.include_documentation else None,
    )


HANDLER = Handler(DescribeConfigsRequest, DescribeConfigsResponse, versions=(1, 4), handle=handle)
