"""Rules that openapi.yaml has only in prose, because generators make worse clients from such schemas.

Schemathesis takes a request that fits the schemas for one that must be accepted, so it has to know them.
"""

from datetime import datetime
from typing import Any

import schemathesis

WAIT = 0.01
TEXT = {"type": "string", "maxLength": 1000}
NUMBER_OR_TEXT = {"type": ["number", "string"]}

SETTLEMENT_FIELDS = {
    "complete": ["execution_time_ms", "status_code", "result"],
    "fail": ["execution_time_ms", "status_code", "error_message", "retryable", "retry_after_seconds"],
    "release": ["delay_seconds"],
}

STATUSES = {
    "retry_events": ["FAILED", "CANCELLED"],
    "cancel_events": ["PENDING", "PROCESSING"],
    "retry_deliveries": ["FAILED", "CANCELLED"],
    "cancel_deliveries": ["PENDING", "PROCESSING", "FAILED"],
}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def given(*names: str) -> dict[str, Any]:
    """Returns the rule that fields are there and not null."""
    present = {"type": ["string", "number", "boolean", "array", "object"]}
    return {"required": list(names), "properties": {name: present for name in names}}


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    schemas = raw_schema["components"]["schemas"]
    close_settings(schemas)
    restrict_events(schemas)
    restrict_settlements(schemas)
    describe_filters(schemas)
    restrict_statuses(raw_schema)
    limit_nothing(schemas)
    leave_out_cursors(raw_schema)
    allow_null(schemas)


def close_settings(schemas: dict[str, Any]) -> None:
    """Settings are open, because responses show them. In requests they are closed, as everything is."""
    of_sources = ["EventTypeFrom", "IdempotencyKeyFrom", "WebhookResponse"]
    for name in ["FixedBackoff", "ExponentialBackoff", "ScheduleBackoff", "Transform", *of_sources]:
        schemas[name]["additionalProperties"] = False
    schemas["Transform"]["dependentRequired"] = {"content_type": ["template"]}
    shapes = ["envelope", "cloudevents", "template"]
    pairs = [[a, b] for a in shapes for b in shapes if a < b]
    schemas["Transform"]["not"] = {"anyOf": [{"required": pair} for pair in pairs]}


def limit_nothing(schemas: dict[str, Any]) -> None:
    """A namespace with limits refuses what must be accepted."""
    del schemas["NewNamespaceSettings"]["properties"]["limits"]
    for name in ["publishes_per_second", "publish_burst"]:
        del schemas["NewKey"]["properties"][name]


def restrict_events(schemas: dict[str, Any]) -> None:
    event = schemas["NewEvent"]
    tagged = given("title", "tags")
    tagged["properties"]["tags"] = {"anyOf": [{"type": "array", "minItems": 1}, {"type": "string", "minLength": 1}]}
    event["anyOf"] = [given("event_type"), tagged]
    event["not"] = {"anyOf": [given("run_at", "delay_seconds"), given("run_at", "expires_at")]}
    event["properties"]["event_type"]["not"] = {"pattern": r"^waybill\."}


def restrict_settlements(schemas: dict[str, Any]) -> None:
    """A settlement has only the fields of its action, and there is something to do."""
    settlement = schemas["Settlement"]
    of_all = ["event_id", "lease_id", "action"]
    settlement["oneOf"] = [
        {
            "properties": {name: True for name in of_all + fields} | {"action": {"const": action}},
            "additionalProperties": False,
        }
        for action, fields in SETTLEMENT_FIELDS.items()
    ]
    schemas["SettleRequest"]["anyOf"] = [given("claim"), {"properties": {"settlements": {"minItems": 1}}}]


def describe_filters(schemas: dict[str, Any]) -> None:
    schemas["Operators"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": False,
        "properties": {
            **{name: {} for name in ["$eq", "$neq", "$contains"]},
            **{name: NUMBER_OR_TEXT for name in ["$gt", "$gte", "$lt", "$lte"]},
            **{name: {"type": "array", "maxItems": 100} for name in ["$in", "$nin"]},
            **{name: TEXT for name in ["$startsWith", "$endsWith"]},
            "$exists": {"type": "boolean"},
        },
    }
    schemas["Condition"] = {
        "anyOf": [{"type": ["string", "number", "boolean", "null"]}, ref("Operators")],
    }
    fields = ["event_type", "created_at", "tags", "payload"]
    schemas["Filter"]["properties"] = {
        **{name: ref("Condition") for name in fields},
        "$not": {"type": "object", "properties": {"tags": ref("Condition")}, "additionalProperties": False},
    }
    schemas["Filter"]["patternProperties"] = {r"^(labels|payload)\.[a-z]{1,9}$": ref("Condition")}
    schemas["Filter"]["additionalProperties"] = False


def restrict_statuses(document: dict[str, Any]) -> None:
    """The status in a filter must fit the action."""
    schemas = document["components"]["schemas"]
    schemas["ResetFilter"]["properties"]["status"] = {"const": "PROCESSING"}
    for methods in document["paths"].values():
        operation = methods.get("post", {})
        name = operation.get("operationId")
        if name not in STATUSES:
            continue
        body = operation["requestBody"]["content"]["application/json"]
        request = schemas[body["schema"]["$ref"].rsplit("/", 1)[1]]
        selected = schemas[request["properties"]["filter"]["$ref"].rsplit("/", 1)[1]]
        properties = selected["properties"] | {"status": {"enum": STATUSES[name]}}
        schemas[f"{name}_filter"] = selected | {"properties": properties}
        schemas[f"{name}_request"] = request | {"properties": request["properties"] | {"filter": ref(f"{name}_filter")}}
        body["schema"] = ref(f"{name}_request")


def allow_null(schemas: dict[str, Any]) -> None:
    """In a body, null counts as absent."""
    for schema in schemas.values():
        if schema.get("additionalProperties") is False and "properties" in schema:
            for name, inner in schema["properties"].items():
                if name not in schema.get("required", []):
                    schema["properties"][name] = {"anyOf": [inner, {"type": "null"}]}


def leave_out_cursors(document: dict[str, Any]) -> None:
    """A cursor is opaque: no text that is made up is one, whatever its schema says."""
    for methods in document["paths"].values():
        for operation in methods.values():
            if isinstance(operation, dict) and "parameters" in operation:
                parameters = operation["parameters"]
                parameters[:] = [each for each in parameters if not each.get("$ref", "").endswith("/After")]


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keeps claims from waiting, and writes whole numbers without a decimal point."""
    case.body = without_points(case.body)
    for backoff in objects(case.body):
        put_in_order(backoff)
    holders = [case.query, case.body]
    if isinstance(case.body, dict):
        holders.append(case.body.get("claim"))
    for holder in holders:
        if isinstance(holder, dict) and WAIT < as_number(holder.get("wait_seconds")) <= 60:
            holder["wait_seconds"] = WAIT


def put_in_order(backoff: dict[str, Any]) -> None:
    """No wait is longer than the maximum. Not every phase of Schemathesis asks `filter_body`."""
    highest = backoff.get("max_seconds")
    for name in ["base_seconds", "floor_seconds"]:
        if is_number(highest) and is_number(backoff.get(name)) and highest < backoff[name] <= 2592000:
            backoff[name] = highest


def without_points(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_points(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_points(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_number(value: Any) -> float:
    """Returns a number, which a query may have as a text; 0 for anything else."""
    try:
        return float(value) if is_number(value) or isinstance(value, str) else 0
    except ValueError:
        return 0


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    """Times and waits must be in order."""
    return all(is_in_order(each) for each in objects(body))


@schemathesis.hook
def filter_query(context: Any, query: Any) -> bool:
    return not isinstance(query, dict) or is_in_order(query)


def objects(value: Any) -> list[dict[str, Any]]:
    """Returns the objects in a value."""
    if isinstance(value, dict):
        return [value] + [inner for each in value.values() for inner in objects(each)]
    if isinstance(value, list):
        return [inner for each in value for inner in objects(each)]
    return []


def is_in_order(value: dict[str, Any]) -> bool:
    base, highest, floor = (value.get(name) for name in ["base_seconds", "max_seconds", "floor_seconds"])
    if is_number(base) and is_number(highest) and base > highest:
        return False
    if is_number(floor) and is_number(highest) and floor > highest:
        return False
    return is_before(value.get("run_at"), value.get("expires_at"))


def is_before(first: Any, second: Any) -> bool:
    """Returns whether two times are in order. Others are not compared."""
    one, other = as_time(first), as_time(second)
    return one is None or other is None or one < other


def as_time(value: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(value)
        return time if time.tzinfo else None
    except (TypeError, ValueError):
        return None
