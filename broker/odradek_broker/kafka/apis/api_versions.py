"""ApiVersions: what is served, made from the table itself: nothing is advertised that is not there (K-1, K-5).

UpdateFeatures beside it: the levels of features are those of this version, and a change of one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from odradek_proto.errors import ErrorCode

from odradek_broker.kafka.messages.codec import RESPONSE, writer_of
from odradek_broker.kafka.messages.primitives import MessageWriter
from odradek_broker.kafka.messages.request import Api, Body, KafkaRequest
from odradek_broker.requests.metadata import MetadataRequests

KEY = 18
Feature = tuple[str, int, int]  # its name, and its smallest and present levels
FEATURES: Sequence[Feature] = (("group.version", 0, 1), ("metadata.version", 7, 27))  # KIP-848, Kafka 4.1
ELIGIBLE: Sequence[Feature] = (("eligible.leader.replicas.version", 0, 1),)  # KIP-966, with odradek.elr.enable
FROM_LEVEL_0 = 4
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")  # KIP-511


class ApiVersionsApi:
    """`apis` is the table that this API itself is in."""

    def __init__(self, apis: Mapping[int, Api], metadata: MetadataRequests, *, elr_enable: bool) -> None:
        self._apis = apis
        self._metadata = metadata
        self._features = (*FEATURES, *(ELIGIBLE if elr_enable else ()))

    async def answer(self, request: KafkaRequest) -> Body:
        me = self._apis[KEY]
        if request.version > me.last:
            return _unknown_version(me)
        if request.version >= me.flexible_from:
            said = request.read()
            software, version = said["client_software_name"], said["client_software_version"]
            if not _SOFTWARE.fullmatch(software) or not _SOFTWARE.fullmatch(version):
                return request.answered({"error_code": ErrorCode.INVALID_REQUEST})
            request.client.software, request.client.version = software, version
        return _answer(request.version, self._ranges, self._features)

    @cached_property
    def _ranges(self) -> tuple[tuple[int, int, int], ...]:
        """Of each API its key, its first version and its last."""
        return tuple(sorted((api.key, api.first, api.last) for api in self._apis.values()))

    async def update(self, request: KafkaRequest) -> Body:
        """All or nothing: one that cannot be fails them all, and each is told so where the version has room for it."""
        asked = request.read()["feature_updates"]
        if refused := self._metadata.refusal(request.context, "UpdateFeatures"):
            return request.answered({"error_code": refused})
        wrong = next((text for each in asked if (text := self._cannot_be(each))), "")
        if wrong:
            text = f"The update failed for all features since the following feature had an error: {wrong}"
            return request.answered({"error_code": ErrorCode.INVALID_UPDATE_VERSION, "error_message": text})
        return request.answered({"results": [{"feature": each["feature"], "error_code": 0} for each in asked]})

    def _cannot_be(self, wanted: Mapping[str, Any]) -> str:
        """A sentence; "" for the level that a feature has."""
        name, level = wanted["feature"], wanted["max_version_level"]
        levels = {feature: present for feature, _, present in self._features}
        if name not in levels:
            return f"there is no feature {name}; there are {', '.join(levels)}"
        present = levels[name]
        return "" if level == present else f"{name} stays at level {present}: another one comes with another version"


@lru_cache(maxsize=64)  # every connection asks, of all brokers of a process
def _answer(version: int, ranges: tuple[tuple[int, int, int], ...], features: tuple[Feature, ...]) -> Body:
    keys = [{"api_key": key, "min_version": first, "max_version": last} for key, first, last in ranges]
    writer = MessageWriter()
    writer_of(KEY, RESPONSE, version)(writer, {"throttle_time_ms": 0, "api_keys": keys, **_told(features, version)})
    return [bytes(buffer) for buffer in writer.buffers()]


def _told(features: Sequence[Feature], version: int) -> Mapping[str, object]:
    """Those that clients decide by (K-32). Before version 4 a client cannot read that levels begin with 0."""
    supported = [
        {"name": name, "min_version": least, "max_version": level}
        for name, least, level in features
        if least > 0 or version >= FROM_LEVEL_0
    ]
    finalized = [{"name": name, "max_version_level": level, "min_version_level": level} for name, _, level in features]
    return {
        "supported_features": supported,
        "finalized_features_epoch": 0,
        "finalized_features": finalized,
    }


def _unknown_version(me: Api) -> Body:
    """In the layout of version 0, which everybody reads: the client asks again, with a version from this range."""
    writer = MessageWriter()
    writer.int16(ErrorCode.UNSUPPORTED_VERSION)
    writer.int32(1)
    for number in (me.key, me.first, me.last):
        writer.int16(number)
    return writer.buffers()
