"""IncrementalAlterConfigs (44), v0-1. Sets, deletes, appends to or subtracts from settings, each resource as a whole.

v1 flexible
"""

from __future__ import annotations

from tidelog.config.alter import Alteration
from tidelog.errors import BrokerError
from tidelog.handlers.config_resources import alter
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(ctx: Context, req: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[await _alter(ctx, resource, validate_only=req.validate_only) for resource in req.resources],
    )


async def _alter(ctx: Context, resource: AlterConfigsResource, *, validate_only: bool) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    result = AlterConfigsResourceResponse(error_code=0, error_message=None, resource_type=kind, resource_name=name)
    changes = [Alteration(config.name, config.config_operation, config.value) for config in resource.configs]
    try:
        await alter(ctx, kind, name, changes, replace=False, validate_only=validate_only)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


HANDLER = Handler(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, versions=(0, 1), handle=handle)
