"""What groups must know of topics: the broker's metadata image, as it is now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class TopicView(Protocol):
    def topic_id(self, name: str) -> bytes | None: ...

    def topic_name(self, topic_id: bytes) -> str | None: ...

    def partition_count(self, name: str) -> int | None: ...

    def topic_names(self) -> Iterable[str]: ...
