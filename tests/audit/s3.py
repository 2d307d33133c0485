"""An S3 server on this machine, moto's, with one bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass
class Bucket:
    """A bucket and where it is."""

    name: str
    endpoint: str
    client: Any

    def uri(self, path: str) -> str:
        return f"s3://{self.name}/{path}?endpoint_override={self.endpoint}&region=us-east-1"

    def credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)

    def put(self, directory: Path, prefix: str) -> None:
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.client.put_object(
                    Bucket=self.name, Key=f"{prefix}/{path.relative_to(directory)}", Body=path.read_bytes()
                )

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def names(self, prefix: str) -> set[str]:
        listed = self.client.list_objects_v2(Bucket=self.name, Prefix=prefix)
        return {entry["Key"] for entry in listed.get("Contents", ()) if not entry["Key"].endswith("/")}


@contextmanager
def s3_server(name: str) -> Iterator[Bucket]:
    """The server on a free port, as long as this lasts. Skips where moto is not installed."""
    moto = pytest.importorskip("moto.server", reason="moto and flask are not installed")
    boto3 = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
        )
        client.create_bucket(Bucket=name)
        yield Bucket(name, endpoint, client)
    finally:
        server.stop()
