"""Admin requests at the active controller: the name says which, bytes in and bytes out."""

from __future__ import annotations

from functools import partial

from odradek_broker.core.context import RequestContext
from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.core.controller.decision import AdminCall, Reading
from odradek_broker.core.controller.unfit_leaders import unfit_brokers
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.controller.term import ActiveController, Term

SERVICE = "/odradek.v1.Admin/"


class UnknownAdminMethod(ValueError):
    """No admin request has this name."""


async def answer_admin(
    controller: ActiveController, term: Term, context: RequestContext, method: str, data: bytes
) -> bytes:
    """Raises `UnknownAdminMethod`, `NotActive`, and `DecodeError` for what is no such request."""
    kind = ADMIN_REQUESTS.get(method.removeprefix(SERVICE))
    if kind is None:
        raise UnknownAdminMethod(f"there is no admin request {method!r}")
    request = kind.request.FromString(data)

    def call(image: MetadataImage) -> AdminCall:
        settings, describe = controller.settings, controller.quorum.describe
        unfit = partial(unfit_brokers, image, term.sessions)
        return AdminCall(context, request, image, settings, controller.clock.rng, describe, unfit)

    if isinstance(kind, Reading):
        return kind.answer(call(controller.feed.image)).SerializeToString()
    decide = kind.decide
    answer = await controller.carry_through(term, lambda image: decide(call(image)))
    encoded: bytes = answer.SerializeToString()
    return encoded
