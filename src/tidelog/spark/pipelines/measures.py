"""What `aggregate` computes: `sum(amount)`, `count(*)`, `avg(price) as mean_price`."""

import re
from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StructType

from tidelog.spark.bounds import InvalidOption
from tidelog.spark.pipelines.fields import field, kind_of

FUNCTIONS: Final = ("sum", "count", "avg", "min", "max", "approx_count_distinct")
_OF_NUMBERS: Final = ("sum", "avg")
_MEASURE: Final = re.compile(r"\s*(\w+)\s*\(\s*(\*|[^()]+?)\s*\)\s*(?:as\s+(\w+)\s*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measure:
    function: str
    field: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        found = _MEASURE.fullmatch(text)
        if found is None:
            raise InvalidOption(f"--measure {text!r} is not understood; write for example 'sum(amount)' or 'count(*)'")
        function, of, name = found[1].lower(), found[2], found[3]
        if function not in FUNCTIONS:
            raise InvalidOption(f"--measure {text!r}: there is no {function}; there are {', '.join(FUNCTIONS)}")
        if of == "*" and function != "count":
            raise InvalidOption(f"--measure {text!r}: only count takes *")
        default = "count" if of == "*" else f"{function}_{of.replace('.', '_')}"
        return cls(function, of, name or default)

    def column(self, schema: StructType) -> Column:
        if self.field == "*":
            return F.count(F.lit(1)).alias(self.name)
        kind = kind_of(schema, self.field, "--measure")
        if self.function in _OF_NUMBERS and not isinstance(kind, NumericType):
            raise InvalidOption(
                f"--measure {self.function}({self.field}): {self.field} is of type {kind.simpleString()}, no number"
            )
        computed: Column = getattr(F, self.function)(field(schema, self.field, "--measure")[0])
        return computed.alias(self.name)


def parse_measures(texts: tuple[str, ...]) -> tuple[Measure, ...]:
    if not texts:
        raise InvalidOption("no --measure is given; write for example --measure 'count(*)'")
    return tuple(Measure.parse(text) for text in texts)
