"""What a pipeline was told when it was begun: kept beside its checkpoint, for a later run must not contradict it.

Rows with other columns, days by another clock or a state of other fields do not mix.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.values import schema_from


def settle(
    path: Path,
    where: str,
    said: Mapping[str, Any],
    *,
    schema: str | None = None,
    infer: Callable[[], StructType] | None = None,
) -> StructType | None:
    """The schema given, or known from the first run, or inferred now; without `infer` values have none."""
    given = schema_from(schema) if schema is not None else None
    if path.exists():
        known = json.loads(path.read_text())
        for name, value in said.items():
            if known.get(name) != value:
                raise InvalidOption(
                    f"{where} was begun with {name.replace('_', ' ')} {_text(known.get(name))}, not {_text(value)}; "
                    "use another directory for that"
                )
        first = StructType.fromJson(known["schema"]) if known["schema"] is not None else None
        if given is not None and given != first:
            raise InvalidOption(f"{where} was begun with another schema; use another directory for this one")
        return first
    if given is None and infer is not None:
        given = infer()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    content = {**said, "schema": None if given is None else given.jsonValue()}
    draft.write_text(json.dumps(content))
    draft.rename(path)
    return given


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)
