"""Write many records fast, and find out at the end whether all of them arrived.

    python examples/fast_producer.py localhost:50051 orders 100000

`enqueue` returns as soon as there is buffer space; leaving the producer flushes, and raises the errors of deliveries
that were not awaited.
"""

import asyncio
import sys
import time

from odradek import Producer


async def main(bootstrap: str, topic: str, count: int) -> None:
    began = time.perf_counter()
    try:
        async with Producer(bootstrap, compression_type="lz4", linger_ms=5, batch_size=65_536) as producer:
            for number in range(count):
                await producer.enqueue(topic, f'{{"number": {number}}}', key=str(number % 100))
    except ExceptionGroup as failures:
        print(failures)
        for error in failures.exceptions:
            print("-", error, *getattr(error, "__notes__", []))
        raise SystemExit(1) from None
    took = time.perf_counter() - began
    print(f"{count} records acknowledged in {took:.2f} s, {count / took:,.0f} a second")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
