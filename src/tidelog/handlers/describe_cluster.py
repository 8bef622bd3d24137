"""DescribeCluster (60), v0-2. Tells the cluster's id, brokers and controller. v1 endpoint type · v2 fenced brokers."""

from __future__ import annotations

from tidelog.errors import BrokerError, ErrorCode
from tidelog.handlers.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED_FOR
from tidelog.handlers.handler import Context, Handler
from tidelog.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1


def handle(ctx: Context, req: DescribeClusterRequest) -> DescribeClusterResponse:
    if req.endpoint_type != BROKERS:
        raise BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "ask for brokers: there are no separate controllers")
    image = ctx.services.image
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker_id, host=endpoint.host, port=endpoint.port, rack=rack)
            for broker_id, endpoint, rack in image.endpoints(ctx.listener)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if req.include_cluster_authorized_operations else NOT_ASKED_FOR
        ),
    )


def _refuse(_req: DescribeClusterRequest, code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        throttle_time_ms=0, error_code=code, error_message=message, cluster_id="", brokers=[]
    )


HANDLER = Handler(DescribeClusterRequest, DescribeClusterResponse, versions=(0, 2), handle=handle, refuse=_refuse)
