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


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    schemas = raw_schema["components"]["schemas"]
    close_settings(schemas)
    restrict_events(schemas)
    restrict_settlements(schemas)
    describe_filters(schemas)
    restrict_statuses(raw_schema)


def close_settings(schemas: dict[str, Any]) -> None:
    """Settings are open, because responses show them. In requests they are closed, as everything is."""
    for name in ["FixedBackoff", "ExponentialBackoff", "ScheduleBackoff", "Transform"]:
        schemas[name]["additionalProperties"] = False
    schemas["Transform"]["dependentRequired"] = {"content_type": ["template"]}
    shapes = ["envelope", "cloudevents", "template"]
    pairs = [[a, b] for a in shapes for b in shapes if a < b]
    schemas["Transform"]["not"] = {"anyOf": [{"required": pair} for pair in pairs]}


def restrict_events(schemas: dict[str, Any]) -> None:
    event = schemas["NewEvent"]
    event["anyOf"] = [{"required": ["event_type"]}, {"required": ["title", "tags"]}]
    event["not"] = {"required": ["run_at", "delay_seconds"]}
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
    schemas["SettleRequest"]["anyOf"] = [{"required": ["claim"]}, {"properties": {"settlements": {"minItems": 1}}}]


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


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Keeps claims from waiting."""
    holders = [case.query, case.body]
    if isinstance(case.body, dict):
        holders.append(case.body.get("claim"))
    for holder in holders:
        if isinstance(holder, dict) and is_number(holder.get("wait_seconds")) and WAIT < holder["wait_seconds"] <= 60:
            holder["wait_seconds"] = WAIT


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@schemathesis.hook
def filter_query(context: Any, query: Any) -> bool:
    """A cursor is opaque, so one that fits its schema is still none; and an offset excludes a cursor."""
    return not (isinstance(query, dict) and "after" in query)


@schemathesis.hook
def filter_body(context: Any, body: Any) -> bool:
    """Times and waits must be in order."""
    return all(is_in_order(each) for each in objects(body))


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
    run_at, expires_at = as_time(value.get("run_at")), as_time(value.get("expires_at"))
    return run_at is None or expires_at is None or expires_at > run_at


def as_time(value: Any) -> datetime | None:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
