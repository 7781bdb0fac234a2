// The shared part of the drivers of the Node peers: the contract of bench/README.md, "Adding a peer".
//
// A peer provides `setup`, `publisher` and `worker`; the workloads are the same for all peers.

const now = () => performance.now();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const quantile = (sorted, q) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * q))];

/** Enough time for a worker to settle its last job and to wait again. */
const IDLE_MS = 20;

/** A JSON document of 120 bytes, the same for all systems. */
const PAYLOAD = { data: "x".repeat(109) };

/**
 * Runs `step` in `callers` concurrent loops until the time is over; `step` returns its number of events.
 * One round before the measurement opens all connections.
 */
async function inParallel(callers, seconds, step) {
  await Promise.all(Array.from({ length: callers }, step));
  const started = now();
  let events = 0;
  const loop = async () => {
    while (now() - started < seconds * 1000) {
      // Not `events += await …`: that would add to the sum from before the wait.
      const done = await step();
      events += done;
    }
  };
  await Promise.all(Array.from({ length: callers }, loop));
  return { events, seconds: (now() - started) / 1000 };
}

const workloads = {
  async setup(peer, url, options) {
    await peer.setup(url, options);
    return {};
  },

  async "publish-one"(peer, url, options) {
    const publisher = await peer.publisher(url, options);
    const figures = await inParallel(options.callers, options.seconds, async () => {
      await publisher.one(PAYLOAD);
      return 1;
    });
    await publisher.close();
    return figures;
  },

  async "publish-batch"(peer, url, options) {
    const publisher = await peer.publisher(url, options);
    const batch = Array(options.batch).fill(PAYLOAD);
    const figures = await inParallel(options.callers, options.seconds, async () => {
      await publisher.many(batch);
      return batch.length;
    });
    await publisher.close();
    return figures;
  },

  async fill(peer, url, options) {
    const publisher = await peer.publisher(url, options);
    for (let left = options.jobs; left > 0; left -= 1000) {
      await publisher.many(Array(Math.min(left, 1000)).fill(PAYLOAD));
    }
    await publisher.close();
    return {};
  },

  /**
   * Measures from the handler's first call to its last, or to the end of the time. The jobs of the
   * first call were fetched before the measurement started, and are not counted.
   */
  async drain(peer, url, options) {
    let [events, before, first, last] = [0, 0, 0, 0];
    let finished;
    const drained = new Promise((done) => (finished = done));
    const onJobs = (count) => {
      last = now();
      if (!first) [first, before] = [last, count];
      events += count;
      if (events >= options.jobs || last - first > options.seconds * 1000) finished();
    };
    const worker = await peer.worker(url, options, onJobs);
    await Promise.race([drained, sleep(options.seconds * 1000 + 15_000)]);
    const figures = { events: events - before, seconds: (last - first) / 1000 };
    await worker.close();
    return figures;
  },

  /** Measures one waiting worker, from before the publish to the start of its handler. */
  async pickup(peer, url, options) {
    let arrived;
    const worker = await peer.worker(url, options, () => arrived?.(now()));
    const publisher = await peer.publisher(url, options);
    const times = [];
    const started = now();
    // The first jobs open connections and fill caches; they are not counted.
    for (let n = -5; n < options.samples && now() - started < options.seconds * 1000; n += 1) {
      await sleep(IDLE_MS);
      const arrival = new Promise((done) => (arrived = done));
      const published = now();
      await publisher.one(PAYLOAD);
      const took = (await arrival) - published;
      if (n >= 0) times.push(took);
    }
    await worker.close();
    await publisher.close();
    times.sort((a, b) => a - b);
    return { samples: times.length, p50_ms: quantile(times, 0.5), p99_ms: quantile(times, 0.99) };
  },
};

/** Runs `driver <workload> <database-url> key=value…` and prints one line of JSON. */
export async function main(peer) {
  const [workload, url, ...pairs] = process.argv.slice(2);
  const options = { queue: "bench", workload };
  for (const pair of pairs) {
    const [key, value] = pair.split("=");
    options[key] = Number.isNaN(Number(value)) ? value : Number(value);
  }
  const figures = await workloads[workload](peer, url, options);
  console.log(JSON.stringify(figures));
  process.exit(0);
}
