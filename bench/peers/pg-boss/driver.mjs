// pg-boss under the common contract. Settings and their sources: peer.json.

import { PgBoss } from "pg-boss";
import { main } from "../contract.mjs";

async function start(connectionString, options) {
  const boss = new PgBoss({
    connectionString,
    max: options.callers ?? 10,
    supervise: false,
    schedule: false,
    useListenNotify: options.workload === "pickup",
  });
  boss.on("error", (error) => console.error(String(error)));
  await boss.start();
  return boss;
}

await main({
  async setup(connectionString, options) {
    const boss = await start(connectionString, options);
    for (const queue of ["bench", "foreign"]) await boss.createQueue(queue, { notify: options.notify === "on" });
    await boss.stop();
  },

  async publisher(connectionString, options) {
    const boss = await start(connectionString, options);
    return {
      one: (data) => boss.send(options.queue, data),
      many: (payloads) => boss.insert(options.queue, payloads.map((data) => ({ data }))),
      close: () => boss.stop(),
    };
  },

  async worker(connectionString, options, onJobs) {
    const boss = await start(connectionString, options);
    const settings =
      options.workload === "pickup"
        ? { batchSize: 1, localConcurrency: 1 }
        : { batchSize: 500, localConcurrency: 4, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };
    await boss.work("bench", settings, async (jobs) => onJobs(jobs.length));
    return { close: () => boss.stop() };
  },
});
