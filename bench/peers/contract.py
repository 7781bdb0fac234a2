"""The shared part of the drivers of the Python peers: the contract of bench/README.md, "Adding a peer".

A peer provides `setup`, `publisher` and `worker`; the workloads are the same for all peers.
"""

import asyncio
import json
import sys
import time

# Enough time for a worker to settle its last job and to wait again.
IDLE_SECONDS = 0.02

# A JSON document of 120 bytes, the same for all systems.
PAYLOAD = {"data": "x" * 109}


class Options(dict):
    """Parses `key=value` arguments; numbers become numbers."""

    def __init__(self, workload, pairs):
        super().__init__(queue="bench", workload=workload)
        for key, _, value in (pair.partition("=") for pair in pairs):
            self[key] = int(value) if value.isdigit() else value

    __getattr__ = dict.__getitem__


async def in_parallel(callers, seconds, step):
    """Runs `step` in `callers` concurrent loops until the time is over; `step` returns its number of events.

    One round before the measurement opens all connections.
    """
    await asyncio.gather(*(step() for _ in range(callers)))
    started = time.perf_counter()
    events = 0

    async def loop():
        nonlocal events
        while time.perf_counter() - started < seconds:
            # Not `events += await …`: that would add to the sum from before the wait.
            done = await step()
            events += done

    await asyncio.gather(*(loop() for _ in range(callers)))
    return {"events": events, "seconds": time.perf_counter() - started}


async def setup(peer, url, options):
    await peer.setup(url)
    return {}


async def publish_one(peer, url, options):
    async with peer.publisher(url, options) as publisher:

        async def step():
            await publisher.one(PAYLOAD)
            return 1

        return await in_parallel(options.callers, options.seconds, step)


async def publish_batch(peer, url, options):
    async with peer.publisher(url, options) as publisher:

        async def step():
            await publisher.many([PAYLOAD] * options.batch)
            return options.batch

        return await in_parallel(options.callers, options.seconds, step)


async def fill(peer, url, options):
    async with peer.publisher(url, options) as publisher:
        for begin in range(0, options.jobs, 1000):
            await publisher.many([PAYLOAD] * min(1000, options.jobs - begin))
    return {}


async def drain(peer, url, options):
    """Measures from the first job that reaches the handler, which is not counted, to the last, or to the
    end of the time."""
    events, first, last = 0, 0.0, 0.0
    drained = asyncio.Event()

    def on_job():
        nonlocal events, first, last
        last = time.perf_counter()
        first = first or last
        events += 1
        if events >= options.jobs or last - first > options.seconds:
            drained.set()

    async with peer.worker(url, options, on_job):
        try:
            await asyncio.wait_for(drained.wait(), options.seconds + 15)
        except asyncio.TimeoutError:
            pass
        return {"events": events - 1, "seconds": last - first}


async def pickup(peer, url, options):
    """Measures one waiting worker, from before the publish to the start of its handler."""
    arrivals = asyncio.Queue()
    times = []
    async with peer.publisher(url, options) as publisher:
        async with peer.worker(url, options, lambda: arrivals.put_nowait(time.perf_counter())):
            started = time.perf_counter()
            # The first jobs open connections and fill caches; they are not counted.
            for number in range(-5, options.samples):
                if time.perf_counter() - started > options.seconds:
                    break
                await asyncio.sleep(IDLE_SECONDS)
                published = time.perf_counter()
                await publisher.one(PAYLOAD)
                took = await arrivals.get() - published
                if number >= 0:
                    times.append(took * 1000)
    times.sort()
    at = lambda quantile: times[min(len(times) - 1, int(len(times) * quantile))]
    return {"samples": len(times), "p50_ms": at(0.5), "p99_ms": at(0.99)}


WORKLOADS = {
    "setup": setup,
    "publish-one": publish_one,
    "publish-batch": publish_batch,
    "fill": fill,
    "drain": drain,
    "pickup": pickup,
}


def main(peer, run=asyncio.run):
    """Runs `driver <workload> <database-url> key=value…` and prints one line of JSON."""
    workload, url, *pairs = sys.argv[1:]
    figures = run(WORKLOADS[workload](peer, url, Options(workload, pairs)))
    print(json.dumps(figures), flush=True)
