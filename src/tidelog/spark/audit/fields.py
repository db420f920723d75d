"""Where a record's event time, sequence and id are: in a field of its JSON value, in a header, in its key."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidelog.spark.bounds import InvalidOption

KEY: Final = "key"
_HEADER: Final = "header:"
_NUMBER: Final = r"^-?[0-9]{1,18}(\.[0-9]+)?$"


def check_field(option: str, field: str | None) -> None:
    if field is not None and (not field.strip() or field == _HEADER or "'" in field):
        raise InvalidOption(f"{option} {field!r}: expected a field such as id or order.id, header:NAME or key")


def columns_for(*fields: str | None) -> list[str]:
    """The columns of the source that are needed to know these fields."""
    given = [field for field in fields if field is not None]
    found = []
    if any(field != KEY and not field.startswith(_HEADER) for field in given):
        found.append("value")
    if any(field.startswith(_HEADER) for field in given):
        found.append("headers")
    return found


def text_of(field: str) -> Column:
    """Null where a record has no such field."""
    if field == KEY:
        return F.col("key").cast("string")
    if field.startswith(_HEADER):
        name = field.removeprefix(_HEADER)
        named = F.filter(F.col("headers"), lambda header: header["key"] == F.lit(name))
        return F.get(named, F.lit(0))["value"].cast("string")
    return F.get_json_object(F.col("value").cast("string"), f"$.{field}")


def number_of(field: str) -> Column:
    """A whole number, or null."""
    return text_of(field).try_cast("bigint")


def millis_of(text: Column) -> Column:
    """Milliseconds since 1970 of a time as people and programs write it: ISO 8601, or a number of seconds,
    milliseconds, microseconds or nanoseconds, whichever makes it a time of these centuries. `text` should be a column
    that is there: it is looked at many times."""
    text = F.trim(text)
    number = F.when(text.rlike(_NUMBER), text.try_cast("double"))
    size = F.abs(number)
    millis = (
        F.when(size < 1e11, number * 1000)
        .when(size < 1e14, number)
        .when(size < 1e17, number / 1000)
        .otherwise(number / 1e6)
    )
    return F.coalesce(F.round(millis).cast("bigint"), F.unix_millis(F.try_to_timestamp(text)))
