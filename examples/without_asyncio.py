"""The same clients from ordinary code: no `await` anywhere.

python examples/without_asyncio.py localhost:50051 orders
"""

import sys

from odradek.sync import Consumer, Producer


def main(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        print("wrote", producer.send(topic, "from a script"))
    with Consumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        for record in consumer.records(until="end"):
            print(record.offset, record.value)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
