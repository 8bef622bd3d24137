"""AlterConfigs (33), v0-2. Replaces all settings of a resource at once; what is not named is reset. v2 flexible."""

from __future__ import annotations

from tidelog.config.alter import Alteration, AlterOperation
from tidelog.errors import BrokerError
from tidelog.handlers.config_resources import alter
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(ctx: Context, req: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[await _alter(ctx, resource, validate_only=req.validate_only) for resource in req.resources],
    )


async def _alter(ctx: Context, resource: AlterConfigsResource, *, validate_only: bool) -> AlterConfigsResourceResponse:
    kind, name = resource.resource_type, resource.resource_name
    result = AlterConfigsResourceResponse(error_code=0, error_message=None, resource_type=kind, resource_name=name)
    changes = [Alteration(config.name, AlterOperation.SET, config.value) for config in resource.configs]
    try:
        await alter(ctx, kind, name, changes, replace=True, validate_only=validate_only)
    except BrokerError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


HANDLER = Handler(AlterConfigsRequest, AlterConfigsResponse, versions=(0, 2), handle=handle)
