"""A schema's text, such as ``"user string, total long"``, where no Spark runs: Spark's own reader is in its JVM.

Names, types and NOT NULL, nested too; no comments, defaults or collations.
"""

from __future__ import annotations

import re

from pyspark.sql import types as spark

from holdfast.errors import InvalidRequest

_NAMES = {
    "boolean": spark.BooleanType, "tinyint": spark.ByteType, "byte": spark.ByteType, "smallint": spark.ShortType,
    "short": spark.ShortType, "int": spark.IntegerType, "integer": spark.IntegerType, "bigint": spark.LongType,
    "long": spark.LongType, "float": spark.FloatType, "real": spark.FloatType, "double": spark.DoubleType,
    "string": spark.StringType, "binary": spark.BinaryType, "date": spark.DateType, "timestamp": spark.TimestampType,
    "timestamp_ltz": spark.TimestampType, "timestamp_ntz": spark.TimestampNTZType, "void": spark.NullType,
}  # fmt: skip
_TOKEN = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<word>\w+)|(?P<mark>[<>(),:]))")


def parse_ddl(text: str, what: str) -> spark.StructType:
    """The struct type that a text describes, as ``StructType.fromDDL`` gives it.

    Raises
    ------
    InvalidRequest
        It is none, or has what only Spark reads.
    """
    return _Ddl(text, what).struct()


class _Ddl:
    """Reads a schema's text: names and types, nested too."""

    def __init__(self, text: str, what: str) -> None:
        self._text, self._what, self._at = text, what, 0

    def struct(self) -> spark.StructType:
        """All of the text."""
        fields = self._fields(":" if ":" in self._text.split("<")[0] else "")
        if self._text[self._at :].strip():
            raise self._error()
        return fields

    def _fields(self, between: str) -> spark.StructType:
        fields = []
        while True:
            name = self._name()
            if between or self._next(peek=True) == ":":
                self._expect(":")
            kind = self._type()
            nullable = self._next(peek=True).lower() != "not"
            if not nullable:
                self._expect("not")
                self._expect("null")
            fields.append(spark.StructField(name, kind, nullable))
            if self._next(peek=True) != ",":
                return spark.StructType(fields)
            self._expect(",")

    def _type(self) -> spark.DataType:
        name = self._next().lower()
        if name == "array":
            (element,) = self._within(1)
            return spark.ArrayType(element)
        if name == "map":
            key, value = self._within(2)
            return spark.MapType(key, value)
        if name == "struct":
            self._expect("<")
            fields = self._fields(":")
            self._expect(">")
            return fields
        if name in ("decimal", "dec", "numeric"):
            return spark.DecimalType(*self._numbers())
        if name == "time" and hasattr(spark, "TimeType"):  # since Spark 4.1
            return spark.TimeType(*self._numbers())
        if name not in _NAMES:
            raise self._error(name)
        return _NAMES[name]()

    def _within(self, count: int) -> list[spark.DataType]:
        self._expect("<")
        found = [self._type()]
        for _ in range(count - 1):
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _numbers(self) -> tuple[int, ...]:
        if self._next(peek=True) != "(":
            return ()
        self._expect("(")
        found = [self._next()]
        if self._next(peek=True) == ",":
            self._expect(",")
            found.append(self._next())
        self._expect(")")
        if not all(number.isdecimal() for number in found):
            raise self._error()
        return tuple(map(int, found))

    def _name(self) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found["mark"]:
            raise self._error()
        self._at = found.end()
        return str(found["quoted"].replace("``", "`") if found["quoted"] else found["word"])

    def _next(self, *, peek: bool = False) -> str:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            return ""
        if not peek:
            self._at = found.end()
        return str(found.group().strip())

    def _expect(self, token: str) -> None:
        if self._next().lower() != token:
            raise self._error()

    def _error(self, found: str | None = None) -> InvalidRequest:
        at = repr(found) if found is not None else repr(self._text[self._at :].strip() or "the end")
        return InvalidRequest(
            f"{self._what}: {self._text!r} is not a schema such as 'user string, total long': found {at}; for other "
            f"types give a pyarrow.Schema or a StructType"
        )
