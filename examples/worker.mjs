// A complete worker. WAYBILL_URL, TAGS and LEASE (seconds) may be set in the environment.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

const server = process.env.WAYBILL_URL ?? "http://127.0.0.1:8080";
const tags = process.env.TAGS ?? "images";
const lease = Number(process.env.LEASE ?? 60);
const worker_id = `${hostname()}:${process.pid}`;
let stopping = false;
process.on("SIGTERM", () => { stopping = true; });

// Yours: returns the result, or throws what went wrong.
async function work(payload) {
  await sleep(1000 * (payload.seconds ?? 0));
  if (payload.photo === undefined) throw new Error("there is no photo");
  return { resized: payload.photo };
}

// Repeats a call until it is answered; every call of a worker may be repeated. `fetch` keeps its connections open.
async function call(path, body) {
  const post = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  for (let pause = 100; ; pause = Math.min(2 * pause, 10_000)) {
    try {
      const response = await fetch(server + path, { ...post, signal: AbortSignal.timeout(90_000) });
      const text = await response.text();
      // 429: too busy; 503: without its database.
      if (![429, 503].includes(response.status)) return { status: response.status, answer: text };
      pause = Math.max(pause, 1000 * Number(response.headers.get("Retry-After")));
    } catch { /* the connection was lost; the next call opens another */ }
    if (stopping) process.exit(); // whatever is held comes back when its lease ends
    await sleep(pause * (0.5 + Math.random() / 2));
  }
}

async function handle(event) {
  const path = `/events/${event.id}`, claim = { worker_id, lease_id: event.lease_id };
  const beating = setInterval(() => call(`${path}/heartbeat`, { ...claim, lease }), (1000 * lease) / 3);
  const outcome = await work(event.payload).then(
    (result) => ["complete", { result }],
    (error) => ["fail", { error_message: String(error) }],
  );
  clearInterval(beating);
  const { status } = await call(`${path}/${outcome[0]}`, { ...claim, ...outcome[1] });
  console.log(outcome[0], event.id, status); // 409: the lease was lost, and the work is somebody else's
}

const query = new URLSearchParams({ tags, worker_id, wait: 10, lease });
while (!stopping) {
  const { status, answer } = await call(`/events/subscribe?${query}`);
  if (status === 200) await handle(JSON.parse(answer));
  else if (status !== 204) throw new Error(`${status}: ${answer}`);
}
process.exit();
