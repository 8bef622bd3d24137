"""ApiVersions (18), v0-4. Tells which requests the broker understands: what the handlers declare, nothing else.

v3 flexible, client name and features · v4 features that may be off. A version that is not served is answered in the
layout of v0 with error 35, so that the client can read which one to use instead (the router sees to that, and calls
`unsupported`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidelog.coordinators.transactions.transaction import BUMPS_EPOCHS
from tidelog.errors import ErrorCode
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.api_keys import ApiKey
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidelog.handlers.reply_cache import EncodedReply

CLIENT_SOFTWARE_SINCE = 3
FEATURES_FROM_ZERO_SINCE = 4
"""Older clients cannot read of a feature that may be off (KAFKA-17492)."""

FEATURES = {"transaction.version": BUMPS_EPOCHS}
"""What is in force in the cluster. Clients that know it end their transactions by EndTxn v5 (KIP-890)."""

_LEGAL_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handle(ctx: Context, req: ApiVersionsRequest) -> ApiVersionsResponse | EncodedReply:
    if ctx.version >= CLIENT_SOFTWARE_SINCE and not (
        _LEGAL_SOFTWARE.fullmatch(req.client_software_name) and _LEGAL_SOFTWARE.fullmatch(req.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    services = ctx.services
    return services.replies.get(services.image.version, ctx.version, ApiVersionsResponse, lambda: _supported(ctx))


def _supported(ctx: Context) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=0,
        api_keys=advertised(ctx.services.served),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=0, max_version=level)
            for name, level in FEATURES.items()
            if ctx.version >= FEATURES_FROM_ZERO_SINCE
        ],
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in FEATURES.items()
        ],
        finalized_features_epoch=0,
    )


def unsupported(served: Mapping[int, Handler[Any, Any]]) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=advertised(served))


def advertised(served: Mapping[int, Handler[Any, Any]]) -> list[ApiVersion]:
    return [
        ApiVersion(
            api_key=api,
            # Older librdkafka takes a lower bound above 0 to mean that the broker knows no compression.
            min_version=0 if api == ApiKey.PRODUCE else handler.versions[0],
            max_version=handler.versions[1],
        )
        for api, handler in sorted(served.items())
    ]


HANDLER = Handler(ApiVersionsRequest, ApiVersionsResponse, versions=(0, 4), handle=handle)
