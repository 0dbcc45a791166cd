"""A producer that is thrown away says nothing, whatever was under way."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from aiokafka import TopicPartition

from noontide.adapters.kafka.producer import DisposableProducer

AT = TopicPartition("orders", 0)


async def test_a_batch_that_waits_for_its_second_try_is_dropped_in_silence() -> None:
    said: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: said.append(context))
    producer = DisposableProducer(bootstrap_servers="127.0.0.1:1")
    waiting = producer._message_accumulator
    batch = producer.create_batch()
    batch.append(key=b"k", value=b"v", timestamp=None)
    done = await waiting.add_batch(batch, AT, 10)
    for _ in range(2):
        waiting.reenqueue(waiting._pop_batch(AT))
    await producer.discard()
    waiting.reenqueue(waiting._pop_batch(AT))  # its request is answered meanwhile
    await asyncio.sleep(0)
    assert done.exception() is not None
    del done, batch
    gc.collect()
    assert said == []
