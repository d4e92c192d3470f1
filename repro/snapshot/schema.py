"""JSON Schemas (2020-12) of the documents in a snapshot's folder, for whoever reads them with another program."""

from __future__ import annotations

from typing import Any

from repro.snapshot.write import SCHEMA_VERSION

_FACT: dict[str, Any] = {
    "type": "object",
    "description": "One value with its evidence; `reason` says why it is unavailable, or how it was found.",
    "required": ["value", "label"],
    "properties": {
        "value": {"description": "Any JSON value; null where the fact is unavailable."},
        "label": {"enum": ["measured", "declared", "unavailable"]},
        "reason": {"type": "string"},
    },
    "additionalProperties": False,
    "if": {"properties": {"label": {"const": "unavailable"}}},
    "then": {"properties": {"value": {"type": "null"}}, "required": ["reason"]},
}
_FACTS = {"type": "object", "additionalProperties": {"$ref": "#/$defs/fact"}}
_BY_NAME = {**_FACTS, "propertyNames": {"pattern": r"^[a-z_]+\.[a-z0-9_]+$"}}
_DIFFERENCE = {
    "type": "object",
    "required": ["name", "pinned", "before", "now"],
    "properties": {
        "name": {"type": "string"},
        "pinned": {"type": "boolean"},
        "before": {"oneOf": [{"$ref": "#/$defs/fact"}, {"type": "null"}]},
        "now": {"oneOf": [{"$ref": "#/$defs/fact"}, {"type": "null"}]},
    },
}


def snapshot_schema(kind: str) -> dict[str, Any]:
    """The schema of `fingerprint` (fingerprint.json) or `snapshot` (snapshot.json); KeyError for another kind."""
    properties, required = {"fingerprint": _fingerprint, "snapshot": _snapshot}[kind]()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"repro {kind}",
        "type": "object",
        "required": ["schema", "version", "repro", "id", *required],
        "properties": {
            "schema": {"const": f"repro/{kind}"},
            "version": {"const": SCHEMA_VERSION},
            "repro": {"type": "string", "description": "the version of repro that took it"},
            "id": {"type": "string"},
            **properties,
        },
        "$defs": {"fact": _FACT},
    }


SNAPSHOT_SCHEMAS = ("fingerprint", "snapshot")


def _fingerprint() -> tuple[dict[str, Any], list[str]]:
    properties = {
        "taken": {"type": "number", "description": "when the capture began, Unix seconds"},
        "pinned": {**_BY_NAME, "description": "must stay equal for two trials to be comparable"},
        "observed": {**_BY_NAME, "description": "may move by itself"},
    }
    return properties, ["taken", "pinned", "observed"]


def _snapshot() -> tuple[dict[str, Any], list[str]]:
    properties = {
        "started": {"type": "number", "description": "Unix seconds"},
        "ended": {"type": "number", "description": "Unix seconds"},
        "triage": {"type": ["object", "null"], "description": "as `repro triage --json` gives it"},
        "facts": {"type": "object", "additionalProperties": _FACTS, "description": "by collector, then by name"},
        "taken": {"type": "object", "additionalProperties": {"type": "number"}, "description": "end of each collector"},
        "warnings": {"type": "array", "items": {"type": "string"}},
        "previous": {"type": ["string", "null"], "description": "the snapshot that `changed` compares with"},
        "changed": {"type": "array", "items": _DIFFERENCE},
        "missing": {"type": "object", "additionalProperties": {"type": "string"}},
        "masked": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "masks by rule"},
    }
    return properties, ["started", "ended", "triage", "facts", "missing", "masked"]
