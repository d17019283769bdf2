"""A declared state as it is recorded: in operator.json, or beside it. Format: docs/formats/operator.md."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

TTL_TIMES = ("processing", "event")


@dataclass(frozen=True)
class StateRecord:
    """A declared state.
    ``schema``: its types by role (value; element; key and value; accumulator and result; namespace). ``earlier``: those
    that it had before, in their order: values that they wrote are in the store. ``ttl_time``: by which time its TTL
    counts, or counted when it had one: times in the store are of that one. None: it had no TTL when it was recorded.
    """

    id: int
    name: str
    kind: str
    schema: pa.Schema
    function: str | None = None
    earlier: tuple[pa.Schema, ...] = ()
    ttl_time: str | None = None

    @property
    def types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.schema}


def state_fields(state: StateRecord) -> dict[str, Any]:
    """A state as it is written."""
    return {
        "id": state.id,
        "name": state.name,
        "kind": state.kind,
        "types": state.types,
        "schema": encode_schema(state.schema),
        "function": state.function,
        **({"earlier": [encode_schema(schema) for schema in state.earlier]} if state.earlier else {}),
        **({"ttl_time": state.ttl_time} if state.ttl_time is not None else {}),
    }


def state_of(fields: Mapping[str, Any]) -> StateRecord:
    """A state as it is read; KeyError, TypeError, ValueError or ArrowException where it is none."""
    schema = decode_schema(fields["schema"])
    earlier = tuple(decode_schema(text) for text in fields.get("earlier", ()))
    ttl_time = fields.get("ttl_time")
    if ttl_time not in (None, *TTL_TIMES):
        raise ValueError(f"the TTL of state {fields['name']!r} counts by {ttl_time!r}; expected one of {TTL_TIMES}")
    return StateRecord(fields["id"], fields["name"], fields["kind"], schema, fields["function"], earlier, ttl_time)


def encode_schema(schema: pa.Schema) -> str:
    """As text."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def decode_schema(text: str) -> pa.Schema:
    """From text; ValueError or ArrowException where it is none."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
