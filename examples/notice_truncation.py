"""Read a topic and be told when records that were read are gone (KIP-320).

    python examples/notice_truncation.py localhost:50051 orders

With auto.offset.reset=none nothing is decided for you: a new position, and what to do about a truncation, is yours.
"""

import asyncio
import sys

from odradek import Consumer, LogTruncated, TopicPartition


async def main(bootstrap: str, topic: str) -> None:
    async with Consumer(bootstrap, auto_offset_reset="none") as consumer:
        partitions = [TopicPartition(topic, number) for number in await consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        while True:
            try:
                for record in await consumer.poll(timeout=1.0):
                    print(record.partition, record.offset, record.leader_epoch, record.value)
            except LogTruncated as lost:
                print(f"{lost.partition}: what was read from {lost.divergent_offset} to {lost.position} is gone")
                if lost.divergent_offset is None:
                    consumer.seek_to_beginning(lost.partition)
                else:
                    consumer.seek(lost.partition, lost.divergent_offset)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
