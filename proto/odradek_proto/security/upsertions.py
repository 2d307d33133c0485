"""What a password comes to in a request that gives it to a user."""

from __future__ import annotations

from odradek_proto.security.scram import HASHES, LEAST_ITERATIONS, salted_password
from odradek_proto.v1.admin_messages import ScramCredentialUpsertion


def scram_upsertions(user: str, password: str, salt: bytes) -> list[ScramCredentialUpsertion]:
    """One for each mechanism; some milliseconds of work on purpose."""
    return [
        ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=LEAST_ITERATIONS,
            salt=salt,
            salted_password=salted_password(mechanism, password, salt, LEAST_ITERATIONS),
        )
        for mechanism in HASHES
    ]
