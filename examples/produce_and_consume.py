"""Write ten records and read them back. Start a cluster first: `odradek cluster up`.

python examples/produce_and_consume.py [ADDRESSES]      # default: ODRADEK_BOOTSTRAP
"""

import asyncio
import os
import sys

from odradek import Admin, Consumer, NewTopic, Producer
from odradek.broker_errors import TopicAlreadyExists

TOPIC = "greetings"


async def main(bootstrap: str) -> None:
    async with Admin(bootstrap) as admin:
        try:
            await admin.create_topics([NewTopic(TOPIC, partitions=3, replication_factor=3)])
        except TopicAlreadyExists:
            print(f"{TOPIC} is there already")

    async with Producer(bootstrap) as producer:
        for number in range(10):
            written = await producer.send(TOPIC, f"hello {number}", key=str(number))
            print(f"wrote {written.topic}-{written.partition} offset {written.offset}")

    async with Consumer(bootstrap, TOPIC, auto_offset_reset="earliest") as consumer:
        async for record in consumer.records(until="end"):
            print(f"read {record.topic}-{record.partition} offset {record.offset}: {record.value!r}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else os.environ.get("ODRADEK_BOOTSTRAP", "localhost:50051")))
