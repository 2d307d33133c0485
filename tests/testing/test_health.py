"""The health service of a broker: what load balancers and probes are told."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2
from odradek_broker.testing import Cluster

SERVING = health_pb2.HealthCheckResponse.SERVING


def test_a_broker_that_is_unfenced_says_that_it_serves() -> None:
    """The whole server and each of its services are SERVING once the cluster is ready."""
    with Cluster(brokers=1) as cluster, grpc.insecure_channel(cluster.bootstrap) as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        for service in ("", "odradek.v1.Broker", "odradek.v1.Admin"):
            answer = check(health_pb2.HealthCheckRequest(service=service), timeout=60)
            assert answer.status == SERVING, service
