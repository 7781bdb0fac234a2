"""Prints the same CloudEvent in the modes of the published Python library, as requests in JSON."""

import json

from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

attributes = {"id": "A-1", "source": "https://shop.example/orders", "type": "order.made", "subject": "order/7",
              "time": "2026-11-17T10:00:00Z", "partitionkey": "customer-3", "tags": "orders"}
event = CloudEvent(attributes, {"total": 12, "name": "Zoë"})
requests = []
for headers, body in (to_structured(event), to_binary(event)):
    requests.append({"headers": dict(headers), "body": body.decode()})
batch = "[" + requests[0]["body"] + "]"
requests.append({"headers": {"content-type": "application/cloudevents-batch+json"}, "body": batch})
print(json.dumps(requests))
