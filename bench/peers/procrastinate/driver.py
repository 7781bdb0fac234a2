"""Procrastinate under the common contract. Settings and their sources: peer.json."""

import asyncio
import contextlib
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import procrastinate
import uvloop

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import contract

CONCURRENCY = 16

logging.disable(logging.WARNING)


def app_for(url, connections):
    """Creates an app with its two tasks, over a connection pool of the given size."""
    connector = procrastinate.PsycopgConnector(conninfo=url, min_size=connections, max_size=connections)
    return procrastinate.App(connector=connector)


async def setup(url):
    async with app_for(url, 1).open_async() as app:
        await app.schema_manager.apply_schema_async()


@contextlib.asynccontextmanager
async def publisher(url, options):
    async with app_for(url, options.get("callers", 1)).open_async() as app:
        job = app.configure_task("bench", queue=options.queue, allow_unknown=True)
        yield SimpleNamespace(
            one=lambda payload: job.defer_async(**payload),
            many=lambda payloads: job.batch_defer_async(*payloads),
        )


@contextlib.asynccontextmanager
async def worker(url, options, on_job):
    concurrency = 1 if options.workload == "pickup" else CONCURRENCY
    # One more connection for the listener, and one for the worker's own queries.
    app = app_for(url, concurrency + 2)

    @app.task(name="bench", queue="bench")
    async def bench(data):
        on_job()

    async with app.open_async():
        working = asyncio.create_task(app.run_worker_async(
            queues=["bench"], concurrency=concurrency, listen_notify=options.workload == "pickup",
            install_signal_handlers=False))
        await asyncio.sleep(0.5)
        try:
            yield
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working


contract.main(sys.modules[__name__], run=uvloop.run)
