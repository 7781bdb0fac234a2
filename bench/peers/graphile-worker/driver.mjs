// Graphile Worker under the common contract. Settings and their sources: peer.json.

import { Logger, makeWorkerUtils, run, runMigrations } from "graphile-worker";
import pg from "pg";
import { main } from "../contract.mjs";

const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

function preset(options) {
  const batching =
    options.workload === "pickup"
      ? { localQueue: { size: -1 }, concurrentJobs: 1 }
      : { localQueue: { size: 500 }, concurrentJobs: 24 };
  return { worker: { ...batching, maxPoolSize: 25, completeJobBatchDelay: 0, failJobBatchDelay: 0 } };
}

await main({
  async setup(connectionString) {
    await runMigrations({ connectionString, logger });
  },

  async publisher(connectionString, options) {
    const pgPool = new pg.Pool({ connectionString, max: options.callers ?? 1 });
    const utils = await makeWorkerUtils({ pgPool, logger });
    return {
      one: (payload) => utils.addJob(options.queue, payload),
      many: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: options.queue, payload }))),
      async close() {
        await utils.release();
        await pgPool.end();
      },
    };
  },

  async worker(connectionString, options, onJobs) {
    const runner = await run({
      connectionString,
      logger,
      noHandleSignals: true,
      preset: preset(options),
      taskList: { bench: () => onJobs(1) },
    });
    return { close: () => runner.stop() };
  },
});
