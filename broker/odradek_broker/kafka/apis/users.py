"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from typing import Any

from odradek_proto.v1.admin_messages import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

from odradek_broker.kafka.apis.admin import Admin, NoController, failed
from odradek_broker.kafka.messages.request import Body, Request

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}  # Kafka's ScramMechanism
NUMBERS = {name: number for number, name in MECHANISMS.items()}


class UsersApi:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    async def describe(self, request: Request) -> Body:
        users = [user["name"] for user in request.read()["users"] or ()]
        try:
            wanted = DescribeUserScramCredentialsRequest(users=users)
            answer = await self._admin.call(request, "DescribeUserScramCredentials", wanted)
        except NoController as nobody:
            return request.answered({**nobody.told(), "results": []})
        results = [
            {
                "user": user.name,
                **failed(user.error_code, user.error_message),
                "credential_infos": [
                    {"mechanism": NUMBERS[each.mechanism], "iterations": each.iterations} for each in user.credentials
                ],
            }
            for user in answer.users
        ]
        return request.answered({**failed(answer.error_code, answer.error_message), "results": results})

    async def alter(self, request: Request) -> Body:
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
        results: list[dict[str, Any]]
        try:
            answer = await self._admin.call(request, "AlterUserScramCredentials", wanted)
        except NoController as nobody:
            names = dict.fromkeys(each["name"] for each in (*asked["deletions"], *asked["upsertions"]))
            results = [{"user": name, **nobody.told()} for name in names]
        else:
            results = [{"user": user.name, **failed(user.error_code, user.error_message)} for user in answer.users]
        return request.answered({"results": results})
