"""How a document reads one value: strict, one fault for one mistake, with a schema and a way back.

Comes in: a plain value and the leaf's reader. Goes out: a value in base units, or a fault. Called by: pydantic,
through the types of `common` and the documents. `Strict` is the base of all documents.

Three rules hold for every field of every document, and this module is where they are kept: an unknown field is a
fault; `null` is never a value (a field that may be absent is left out); and `UNKNOWN` passes every reader untouched,
so that `spec` can check the sound rest of a document whose faulty values it has replaced by it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidatorFunctionWrapHandler,
    field_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from orchestrator.wire.faults import Loc, described, refuse

T = TypeVar("T")


class UnknownTouched(Exception):
    """A check used a value that could not be read: the check has nothing to say."""


class Unknown:
    """Stands for a value that was refused. Whatever touches it stops with `UnknownTouched`."""

    __slots__ = ()

    def _touch(self, *_args: object) -> NoReturn:
        raise UnknownTouched

    __bool__ = __len__ = __iter__ = __contains__ = __getitem__ = __int__ = __index__ = __str__ = __repr__ = (
        _touch
    )
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _touch
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __mod__ = __rmod__ = (
        __format__
    ) = _touch

    def __getattr__(self, name: str) -> NoReturn:
        raise UnknownTouched

    def __hash__(self) -> NoReturn:
        raise UnknownTouched


UNKNOWN: Any = Unknown()  # of any type, since it may stand for any value


def read_present(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Run before the reader of every field, list item and map value."""
    if value is UNKNOWN:
        return value
    if value is None:
        raise PydanticCustomError("gangline_null", "null is no value here")
    return handler(value)


class Strict(BaseModel):
    """A mapping of the document. Unknown fields, null and values of another type are faults."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_by_name=False, validate_by_alias=True
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _read_field(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        return read_present(value, handler)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Leaf:
    """Reads one value with `read`, writes it with `write`, and describes itself with `schema`."""

    read: Callable[[Any], Any]
    schema: dict[str, Any] = field(hash=False)
    write: Callable[[Any], Any] = _same

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The reader and the writer, as pydantic calls them."""
        return core_schema.no_info_plain_validator_function(
            self._read_known, serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def _read_known(self, value: Any) -> Any:
        """A list of which one item is unknown is unknown as a whole."""
        unknown = isinstance(value, list) and any(item is UNKNOWN for item in value)
        return UNKNOWN if unknown else self.read(value)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """A copy, since pydantic adds the field's description to it."""
        return dict(self.schema)


QUOTE_IT = "put it in quotes to make it a text"


def text_of(value: Any, expected: str, advice: str = QUOTE_IT) -> str:
    """The value if it is text, else a fault that says what was expected; `advice` is for numbers and true or false."""
    if isinstance(value, str):
        return value
    raise wrong_type(value, expected, advice=advice)


def wrong_type(value: Any, expected: str, at: Loc = (), advice: str = "") -> PydanticCustomError:
    """The fault of a value of another type."""
    scalar = isinstance(value, (bool, int, float))
    told = advice if scalar else ""
    return refuse("spec.wrong-type", at, expected=expected, got=described(value), advice=told)


def key_leaf(one: Leaf) -> Leaf:
    """The same leaf for the keys of a mapping: its faults are told to be of a key."""

    def read(value: Any) -> Any:
        try:
            return one.read(value)
        except PydanticCustomError as error:
            raise PydanticCustomError("gangline_key", "{message}", error.context) from None

    return Leaf(read, one.schema, one.write)
