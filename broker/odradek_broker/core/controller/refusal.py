"""A request that cannot be granted, on its way to the answer."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode


class Refusal(Exception):
    """Raised while a request is looked at; caught where its answer is made. `message` is a sentence for people."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(f"{error.name}: {message}")
        self.error = error
        self.message = message
