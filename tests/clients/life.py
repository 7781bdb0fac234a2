"""An event's life, with a client that openapi-python-client generated: python life.py <url>."""

import sys
from typing import TypeVar

from waybill_client import AuthenticatedClient
from waybill_client.api.claim import claim_event, claim_events
from waybill_client.api.observe import get_event, list_events
from waybill_client.api.operate import cancel_events, get_operation, list_operations
from waybill_client.api.publish import publish_event, publish_events
from waybill_client.api.push import create_subscription, delete_subscription, update_subscription
from waybill_client.api.work import complete_event, fail_event, send_heartbeat, settle_events
from waybill_client.models import (
    BulkEventsRequest,
    ClaimedEvent,
    ClaimRequest,
    CompleteRequest,
    Effect,
    EventsFilter,
    ExponentialBackoff,
    FailRequest,
    FixedBackoff,
    HeartbeatRequest,
    LogEntry,
    MatchedEvents,
    NewEvent,
    NewEvents,
    NewSubscription,
    NextClaim,
    Operation,
    Order,
    Problem,
    PublishedEvent,
    Settlement,
    SettlementAction,
    SettleRequest,
    Status,
    SubscriptionUpdate,
)
from waybill_client.types import UNSET, Unset

Success = TypeVar("Success")
WORKER = "python:1"


def expect(response: Success | Problem | None) -> Success:
    """Returns what is not a problem."""
    if isinstance(response, Problem) or response is None:
        raise SystemExit(f"unexpected: {response}")
    return response


def given(value: Success | Unset) -> Success:
    """Returns an optional field that must be there."""
    assert not isinstance(value, Unset)
    return value


def live(client: AuthenticatedClient) -> None:
    """Publishes an event, fails it, and completes it in the second attempt."""
    new = NewEvent(
        title="Thumbnails",
        tags=["python"],
        payload={"photo": 7041},
        backoff=FixedBackoff(strategy="fixed", seconds=0),
    )
    event = publish_event.sync(client=client, body=new)
    assert isinstance(event, PublishedEvent), event
    assert (event.status, event.enqueued, event.repeated) == (Status.PENDING, 0, False)
    claimed = claim_event.sync(client=client, tags="python", worker_id=WORKER)
    assert isinstance(claimed, ClaimedEvent), claimed
    assert (claimed.id, claimed.attempt, claimed.payload) == (event.id, 1, {"photo": 7041})
    beat = HeartbeatRequest(worker_id=WORKER, lease_id=claimed.lease_id, lease_seconds=60.5, progress=[1, 2])
    extended = expect(send_heartbeat.sync(event.id, client=client, body=beat))
    assert not extended.cancel_requested
    failure = FailRequest(worker_id=WORKER, lease_id=claimed.lease_id, error_message="the disk is full")
    entry = expect(fail_event.sync(event.id, client=client, body=failure))
    assert (entry.action, given(entry.retry_scheduled)) == ("FAILED", True)
    again = claim_event.sync(client=client, tags="python", worker_id=WORKER, wait_seconds=10)
    assert isinstance(again, ClaimedEvent), again
    assert again.lease_id > claimed.lease_id
    late = CompleteRequest(worker_id=WORKER, lease_id=claimed.lease_id)  # the claim that failed
    refused = complete_event.sync(event.id, client=client, body=late)
    assert isinstance(refused, Problem), refused
    assert (refused.code, refused.retryable, refused.effect) == ("already_settled", False, Effect.NONE)
    done = CompleteRequest(worker_id=WORKER, lease_id=again.lease_id, result={"files": 2})
    assert expect(complete_event.sync(event.id, client=client, body=done)).action == "COMPLETED"
    nothing = claim_event.sync_detailed(client=client, tags="python", worker_id=WORKER)
    assert (nothing.status_code, nothing.parsed) == (204, None)
    whole = expect(get_event.sync(event.id, client=client, include_logs=True))
    assert whole.result == {"files": 2}
    actions = [log.action for log in given(whole.logs)]
    assert actions == ["PICKED", "FAILED", "PICKED", "COMPLETED"]


def work_in_batches(client: AuthenticatedClient) -> None:
    """Publishes a batch, and settles one event while claiming the others."""
    batch = NewEvents(events=[NewEvent(title=f"Photo {n}", tags="python-batch") for n in range(3)])
    receipts = expect(publish_events.sync(client=client, body=batch)).events
    assert [receipt.status for receipt in receipts] == [Status.PENDING] * 3
    ask = ClaimRequest(worker_id=WORKER, tags=["python-batch"], max_=1, idempotency_key="first")
    first = expect(claim_events.sync(client=client, body=ask)).events[0]
    assert expect(claim_events.sync(client=client, body=ask)).events[0].lease_id == first.lease_id
    settle = SettleRequest(
        worker_id=WORKER,
        settlements=[
            Settlement(event_id=first.id, lease_id=first.lease_id, action=SettlementAction.COMPLETE, result=[1]),
            Settlement(event_id=2**53 - 1, action=SettlementAction.RELEASE),
        ],
        claim=NextClaim(tags=["python-batch"], max_=10),
    )
    settled = expect(settle_events.sync(client=client, body=settle))
    accepted, unknown = settled.results
    assert accepted.accepted and given(accepted.entry).action == "COMPLETED"
    assert not unknown.accepted and given(unknown.problem).code == "event_not_found"
    assert [event.id for event in settled.events] == [receipt.id for receipt in receipts[1:]]
    assert isinstance(settled.claim_problem, Unset)
    last = SettleRequest(
        worker_id=WORKER,
        settlements=[
            Settlement(event_id=event.id, action=SettlementAction.FAIL, retryable=False) for event in settled.events
        ],
    )
    results = expect(settle_events.sync(client=client, body=last)).results
    assert [given(result.entry).retry_scheduled for result in results] == [False, False]


def subscribe(client: AuthenticatedClient) -> None:
    """Creates a subscription, and changes it unless somebody else has."""
    new = NewSubscription(url="https://shop.example/hook", event_types=["order.*"], is_active=False, max_attempts=7)
    created = create_subscription.sync_detailed(client=client, body=new)
    subscription = expect(created.parsed)
    tag = created.headers["etag"]
    slower = SubscriptionUpdate(
        rate_per_second=0.5, backoff=ExponentialBackoff(strategy="exponential", base_seconds=1, max_seconds=9)
    )
    changed = expect(update_subscription.sync(subscription.id, client=client, body=slower, if_match=tag))
    assert (changed.rate_per_second, changed.max_attempts) == (0.5, 7), "other fields stay"
    assert isinstance(changed.backoff, ExponentialBackoff)
    outdated = update_subscription.sync(subscription.id, client=client, body=slower, if_match=tag)
    assert isinstance(outdated, Problem) and outdated.code == "precondition_failed", outdated
    default = SubscriptionUpdate(rate_per_second=None, backoff=None)
    changed = expect(update_subscription.sync(subscription.id, client=client, body=default))
    assert changed.rate_per_second is None
    assert delete_subscription.sync_detailed(subscription.id, client=client).status_code == 204


def list_all(client: AuthenticatedClient) -> None:
    """Reads all pages of a list."""
    ids: list[int] = []
    after: str | Unset = UNSET
    while True:
        page = expect(list_events.sync(client=client, order=Order.DESC, limit=2, after=after))
        ids += [event.id for event in page.events]
        if page.next_ is None:
            break
        after = page.next_
    assert len(ids) >= 4 and ids == sorted(ids, reverse=True), ids


def operate(client: AuthenticatedClient) -> None:
    """Counts what an operation would change, starts it, and waits for its end."""
    event = publish_event.sync(client=client, body=NewEvent(title="Obsolete", tags="python-obsolete"))
    assert isinstance(event, PublishedEvent), event
    selected = EventsFilter(status=Status.PENDING, tags=["python-obsolete"])
    count = cancel_events.sync(client=client, body=BulkEventsRequest(filter_=selected, dry_run=True))
    assert isinstance(count, MatchedEvents), count
    assert (count.matched, given(count.sample)[0].id) == (1, event.id)
    started = cancel_events.sync(client=client, body=BulkEventsRequest(filter_=selected, reason="obsolete"))
    assert isinstance(started, Operation), started
    operation = started
    while operation.finished_at is None:
        operation = expect(get_operation.sync(started.id, client=client))
    assert (operation.kind, operation.done) == ("cancel_events", 1)
    assert started.id in [one.id for one in expect(list_operations.sync(client=client)).operations]
    assert expect(get_event.sync(event.id, client=client)).status == Status.CANCELLED


def read_what_is_new() -> None:
    """Reads a log entry with values and a field that a later server might send."""
    entry = LogEntry.from_dict(
        {
            "id": 1,
            "event_id": 7,
            "action": "ADMIRED",
            "attempt": 1,
            "created_at": "2026-03-09T08:15:02.113045Z",
            "error_kind": "boredom",
            "colour": "red",
        }
    )
    assert (entry.action, given(entry.error_kind), entry["colour"]) == ("ADMIRED", "boredom", "red")
    assert isinstance(entry.lease_id, Unset), "there was no claim"


if __name__ == "__main__":
    read_what_is_new()
    with AuthenticatedClient(base_url=sys.argv[1], token="unused", raise_on_unexpected_status=True) as client:
        live(client)
        work_in_batches(client)
        subscribe(client)
        list_all(client)
        operate(client)
    print("done")
