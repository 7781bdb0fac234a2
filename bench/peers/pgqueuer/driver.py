"""pgqueuer under the common contract. Settings and their sources: peer.json."""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import contract

CONSUMERS = 2
BATCH = 500

logging.disable(logging.WARNING)


async def setup(url):
    connection = await asyncpg.connect(url)
    queries = Queries(AsyncpgDriver(connection))
    await queries.install()
    await queries.optimize_autovacuum()
    await connection.close()


@contextlib.asynccontextmanager
async def publisher(url, options):
    callers = options.get("callers", 1)
    async with asyncpg.create_pool(url, min_size=callers, max_size=callers) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        encoded = lambda payload: json.dumps(payload).encode()
        yield SimpleNamespace(
            one=lambda payload: queries.enqueue(options.queue, encoded(payload)),
            many=lambda payloads: queries.enqueue(
                [options.queue] * len(payloads), [encoded(payload) for payload in payloads], [0] * len(payloads)),
        )


@contextlib.asynccontextmanager
async def worker(url, options, on_job):
    pickup = options.workload == "pickup"
    connections, managers, running = [], [], []
    for _ in range(1 if pickup else CONSUMERS):
        connections.append(await asyncpg.connect(url))
        manager = PgQueuer(AsyncpgDriver(connections[-1]))

        @manager.entrypoint("bench")
        async def bench(job):
            on_job()

        managers.append(manager)
        running.append(asyncio.create_task(manager.run(batch_size=1 if pickup else BATCH)))
    await asyncio.sleep(0.5)
    try:
        yield
    finally:
        for manager in managers:
            manager.shutdown.set()
        await asyncio.gather(*running, return_exceptions=True)
        for connection in connections:
            await connection.close()


contract.main(sys.modules[__name__], run=uvloop.run)
