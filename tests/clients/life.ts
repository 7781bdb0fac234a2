// An event's life, with types that openapi-typescript generated: node life.js <url>.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./.generated/api.js";

type Problem = components["schemas"]["Problem"];

const WORKER = "typescript:1";
const client = createClient<paths>({ baseUrl: process.argv[2]! });

/** Returns the body of a success. */
function expect<Body>(reply: { data?: Body; error?: Problem }): NonNullable<Body> {
  if (reply.data == null) throw new Error(`unexpected: ${JSON.stringify(reply.error)}`);
  return reply.data;
}

/** Publishes an event, fails it, and completes it in the second attempt. */
async function live(): Promise<void> {
  const event = expect(
    await client.POST("/events", {
      body: {
        title: "Thumbnails",
        tags: ["typescript"],
        payload: { photo: 7041 },
        backoff: { strategy: "fixed", seconds: 0 },
      },
    }),
  );
  assert.ok("enqueued" in event);
  assert.deepEqual([event.status, event.enqueued, event.repeated], ["PENDING", 0, false]);
  const params = { path: { id: event.id } };
  const ask = { query: { tags: "typescript", worker_id: WORKER, wait_seconds: 10 } };
  const claimed = expect(await client.GET("/events/subscribe", { params: ask }));
  assert.deepEqual([claimed.id, claimed.attempt, claimed.payload], [event.id, 1, { photo: 7041 }]);
  const lease = { worker_id: WORKER, lease_id: claimed.lease_id };
  const beat = { ...lease, lease_seconds: 60.5, progress: [1, 2] };
  const extended = expect(await client.POST("/events/{id}/heartbeat", { params, body: beat }));
  assert.equal(extended.cancel_requested, false);
  const failure = { ...lease, error_message: "the disk is full" };
  const entry = expect(await client.POST("/events/{id}/fail", { params, body: failure }));
  assert.deepEqual([entry.action, entry.retry_scheduled], ["FAILED", true]);
  const again = expect(await client.GET("/events/subscribe", { params: ask }));
  assert.ok(again.lease_id > claimed.lease_id);
  const { error } = await client.POST("/events/{id}/complete", { params, body: lease });
  assert.deepEqual([error?.code, error?.retryable, error?.effect], ["already_settled", false, "none"]);
  const body = { worker_id: WORKER, lease_id: again.lease_id, result: { files: 2 } };
  const done = expect(await client.POST("/events/{id}/complete", { params, body }));
  assert.equal(done.action, "COMPLETED");
  const nothing = await client.GET("/events/subscribe", {
    params: { query: { tags: "typescript", worker_id: WORKER } },
  });
  assert.equal(nothing.response.status, 204);
  const whole = expect(
    await client.GET("/events/{id}", { params: { ...params, query: { include_logs: true } } }),
  );
  assert.deepEqual(whole.result, { files: 2 });
  const actions = whole.logs?.map((log) => log.action);
  assert.deepEqual(actions, ["PICKED", "FAILED", "PICKED", "COMPLETED"]);
}

/** Publishes a batch, and settles one event while claiming the others. */
async function workInBatches(): Promise<void> {
  const events = [0, 1, 2].map((n) => ({ title: `Photo ${n}`, tags: "typescript-batch" }));
  const receipts = expect(await client.POST("/events/batch", { body: { events } })).events;
  assert.deepEqual(receipts.map((receipt) => receipt.status), ["PENDING", "PENDING", "PENDING"]);
  const ask = { worker_id: WORKER, tags: ["typescript-batch"], max: 1, idempotency_key: "first" };
  const first = expect(await client.POST("/events/claim", { body: ask })).events[0]!;
  const repeated = expect(await client.POST("/events/claim", { body: ask })).events[0]!;
  assert.equal(repeated.lease_id, first.lease_id);
  const settled = expect(
    await client.POST("/events/settle", {
      body: {
        worker_id: WORKER,
        settlements: [
          { event_id: first.id, lease_id: first.lease_id, action: "complete", result: [1] },
          { event_id: Number.MAX_SAFE_INTEGER, action: "release" },
        ],
        claim: { tags: ["typescript-batch"], max: 10 },
      },
    }),
  );
  assert.equal(settled.results[0]?.entry?.action, "COMPLETED");
  assert.deepEqual([settled.results[1]?.accepted, settled.results[1]?.problem?.code], [false, "event_not_found"]);
  assert.deepEqual(
    settled.events.map((event) => event.id),
    receipts.slice(1).map((receipt) => receipt.id),
  );
  assert.equal(settled.claim_problem, undefined);
  const settlements = settled.events.map((event) => ({
    event_id: event.id,
    action: "fail" as const,
    retryable: false,
  }));
  const last = expect(await client.POST("/events/settle", { body: { worker_id: WORKER, settlements } }));
  assert.deepEqual(last.results.map((result) => result.entry?.retry_scheduled), [false, false]);
}

/** Creates a subscription, and changes it unless somebody else has. */
async function subscribe(): Promise<void> {
  const created = await client.POST("/subscriptions", {
    body: { url: "https://shop.example/hook", event_types: ["order.*"], is_active: false, max_attempts: 7 },
  });
  const tag = created.response.headers.get("etag")!;
  const path = { id: expect(created).id };
  const params = { path, header: { "If-Match": tag } };
  const body = {
    rate_per_second: 0.5,
    backoff: { strategy: "exponential" as const, base_seconds: 1, max_seconds: 9 },
  };
  const changed = expect(await client.PATCH("/subscriptions/{id}", { params, body }));
  assert.deepEqual([changed.rate_per_second, changed.max_attempts], [0.5, 7], "other fields stay");
  assert.equal(changed.backoff.strategy, "exponential");
  const outdated = await client.PATCH("/subscriptions/{id}", { params, body });
  assert.equal(outdated.error?.code, "precondition_failed");
  const defaults = { rate_per_second: null, backoff: null };
  const reset = expect(await client.PATCH("/subscriptions/{id}", { params: { path }, body: defaults }));
  assert.equal(reset.rate_per_second, null);
  const deleted = await client.DELETE("/subscriptions/{id}", { params: { path } });
  assert.equal(deleted.response.status, 204);
}

/** Reads all pages of a list. */
async function listAll(): Promise<void> {
  const ids: number[] = [];
  let after: string | null = null;
  do {
    const query: NonNullable<paths["/events"]["get"]["parameters"]["query"]> = { order: "desc", limit: 2 };
    if (after !== null) query.after = after;
    const page: components["schemas"]["EventPage"] = expect(await client.GET("/events", { params: { query } }));
    ids.push(...page.events.map((event) => event.id));
    after = page.next;
  } while (after !== null);
  assert.ok(ids.length >= 4);
  assert.deepEqual(ids, ids.toSorted((a, b) => b - a));
}

/** Counts what an operation would change, starts it, and waits for its end. */
async function operate(): Promise<void> {
  const event = expect(await client.POST("/events", { body: { title: "Obsolete", tags: "typescript-obsolete" } }));
  const filter = { status: "PENDING" as const, tags: ["typescript-obsolete"] };
  const count = expect(await client.POST("/events/cancel", { body: { filter, dry_run: true } }));
  assert.ok("sample" in count);
  assert.deepEqual([count.matched, count.sample[0]?.id], [1, event.id]);
  const started = expect(await client.POST("/events/cancel", { body: { filter, reason: "obsolete" } }));
  assert.ok("kind" in started);
  const params = { path: { id: started.id } };
  let operation = started;
  while (operation.finished_at === null) {
    operation = expect(await client.GET("/operations/{id}", { params }));
  }
  assert.deepEqual([operation.kind, operation.done], ["cancel_events", 1]);
  const listed = expect(await client.GET("/operations", {})).operations;
  assert.ok(listed.some((one) => one.id === started.id));
  const cancelled = expect(await client.GET("/events/{id}", { params: { path: { id: event.id } } }));
  assert.equal(cancelled.status, "CANCELLED");
}

await live();
await workInBatches();
await subscribe();
await listAll();
await operate();
console.log("done");
