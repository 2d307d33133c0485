"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from odradek_proto.v1.admin_messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from odradek_broker.kafka.apis.admin import AdminApi, told
from odradek_broker.kafka.messages.request import Body, KafkaRequest

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # Kafka's ScramMechanism
NUMBERS = {name: number for number, name in MECHANISMS.items()}


class UsersApi:
    def __init__(self, admin: AdminApi) -> None:
        self._admin = admin

    async def describe(self, request: KafkaRequest) -> Body:
        users = [user["name"] for user in request.read()["users"] or ()]
        wanted = DescribeUserScramCredentialsRequest(users=users)
        answer = await self._admin.call(request, "DescribeUserScramCredentials", wanted)
        results = [
            {
                "user": user.name,
                **told(user),
                "credential_infos": [
                    {"mechanism": NUMBERS[each.mechanism], "iterations": each.iterations} for each in user.credentials
                ],
            }
            for user in answer.users
        ]
        return request.answered({**told(answer), "results": results})

    async def alter(self, request: KafkaRequest) -> Body:
        asked = request.read()
        wanted = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=each["name"], mechanism=MECHANISMS.get(each["mechanism"], ""))
                for each in asked["deletions"]
            ],
            upsertions=[
                ScramCredentialUpsertion(
                    name=each["name"],
                    mechanism=MECHANISMS.get(each["mechanism"], ""),
                    iterations=each["iterations"],
                    salt=each["salt"],
                    salted_password=each["salted_password"],
                )
                for each in asked["upsertions"]
            ],
        )
        answer = await self._admin.call(request, "AlterUserScramCredentials", wanted)
        return request.answered({"results": [{"user": user.name, **told(user)} for user in answer.users]})
