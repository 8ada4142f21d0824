"""Columns of keys and values as arrays of NumPy and Arrow, and as frames of pandas.

A column comes as bytes that an array can stand on without copying them, with the format of its numbers; as a pair of
such, where texts end and the texts, in Arrow's own layout; or as a list.
"""

from __future__ import annotations

from typing import Any


def plain(keys: Any) -> Any:
    """Returns keys of pyarrow, pandas and their like as an array, or as a list where they are no numbers."""
    if type(keys).__module__.partition(".")[0] == "pyarrow":
        import pyarrow

        if keys.null_count or not (pyarrow.types.is_integer(keys.type) or pyarrow.types.is_floating(keys.type)):
            return keys.to_pylist()
    return keys.to_numpy()


def numbers(buffer: Any, format: str) -> Any:
    """Returns an array of NumPy's that stands on a buffer."""
    import numpy

    return numpy.frombuffer(buffer, dtype=format)


def _texts(column: tuple[Any, Any], kind: str) -> list[Any]:
    """Returns a column of texts or bytes as a list."""
    ends = memoryview(column[0]).cast("q").tolist()
    whole = bytes(column[1])
    several = [whole[start:end] for start, end in zip(ends, ends[1:])]
    return [text.decode() for text in several] if kind == "text" else several


def _listed(column: Any, kind: Any) -> list[Any]:
    """Returns a column that is no numbers as a list."""
    return _texts(column, kind) if kind in ("text", "bytes") else column


def _is_number(kind: Any) -> bool:
    return isinstance(kind, str) and len(kind) == 1


def found(values: Any, format: str, found: Any, keys: Any, default: Any) -> Any:
    """Returns the values that were found as an array, with `default` for those that were not."""
    values, found = numbers(values, format), numbers(found, "?")
    if not found.all():
        absent = ~found
        if default is None:
            first = plain(keys)[int(absent.argmax())] if hasattr(keys, "to_numpy") else keys[int(absent.argmax())]
            error = KeyError(first)
            error.add_note(f"{int(absent.sum())} of {len(found)} keys are absent: give a default, or ask contains_many")
            raise error
        values[absent] = default
    return values


def get_arrow(tree: Any, keys: Any, default: Any) -> Any:
    """Returns the values of keys that are in an array of Arrow's in such an array; null stands for absent ones."""
    ((_, kind),) = tree.values()._columns()
    values, found = tree._lookup(keys)
    array = _arrow(values, kind, absent=~numbers(found, "?"))
    return array if default is None else array.fill_null(default)


def to_numpy(view: Any) -> Any:
    """Returns the columns of a view as arrays: one, or a pair."""
    import numpy

    kinds = view._columns()
    _, columns, _ = view._read(2**63 - 1)
    arrays = []
    for (name, kind), column in zip(kinds, columns):
        if _is_number(kind):
            arrays.append(numbers(column, kind))
            continue
        listed = _decoded(view, name, _listed(column, kind))
        array: Any = numpy.empty(len(listed), dtype=object)
        array[:] = listed
        arrays.append(array)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def _decoded(view: Any, name: str, listed: list[Any]) -> list[Any]:
    """Returns values as the tree's codec makes them."""
    decoded = view._decoded(listed) if name == "value" else None
    return listed if decoded is None else decoded


def to_pandas(view: Any) -> Any:
    """Returns the columns of a view as a frame of pandas."""
    import pandas

    arrays = to_numpy(view)
    names = [name for name, _ in view._columns()]
    return pandas.DataFrame(dict(zip(names, arrays if isinstance(arrays, tuple) else (arrays,))))


def _arrow_type(kind: Any) -> Any:
    """Returns the type that Arrow has for a kind."""
    import pyarrow

    if isinstance(kind, tuple):
        match kind:
            case ("array", size):
                return pyarrow.binary(size)
            case ("option", inner):
                return _arrow_type(inner)
            case ("tuple", kinds):
                return pyarrow.struct([(str(place), _arrow_type(inner)) for place, inner in enumerate(kinds)])
    types = {
        "?": pyarrow.bool_(), "B": pyarrow.uint8(), "H": pyarrow.uint16(), "I": pyarrow.uint32(),
        "Q": pyarrow.uint64(), "b": pyarrow.int8(), "h": pyarrow.int16(), "i": pyarrow.int32(),
        "q": pyarrow.int64(), "f": pyarrow.float32(), "d": pyarrow.float64(), "text": pyarrow.large_string(),
        "bytes": pyarrow.large_binary(), "char": pyarrow.string(), "()": pyarrow.null(),
    }  # fmt: skip
    if kind not in types:
        raise TypeError(f"Arrow has no type for {kind}")
    return types[kind]


def _arrow(column: Any, kind: Any, absent: Any = None) -> Any:
    """Returns a column as an array of Arrow's; `absent` says what is null."""
    import pyarrow

    type = _arrow_type(kind)
    if _is_number(kind):
        return pyarrow.array(numbers(column, kind), type=type, mask=absent)
    if kind not in ("text", "bytes"):
        if absent is not None:
            column = [None if absent else value for value, absent in zip(column, absent)]
        return pyarrow.array(column, type=type)
    ends, whole = (pyarrow.py_buffer(part) for part in column)
    valid = None
    if absent is not None and absent.any():
        valid = pyarrow.array(~absent).buffers()[1]
    return pyarrow.Array.from_buffers(type, len(memoryview(column[0])) // 8 - 1, [valid, ends, whole])


def to_arrow(view: Any, batch_size: int) -> Any:
    """Returns a reader of a view's columns, as record batches. Values that go through a codec are as they are stored."""
    import pyarrow

    kinds = view._columns()
    schema = pyarrow.schema([(name, _arrow_type(kind)) for name, kind in kinds])

    def batches(rest: Any) -> Any:
        while rest is not None:
            count, columns, rest = rest._read(batch_size)
            if count:
                arrays = [_arrow(column, kind) for column, (_, kind) in zip(columns, kinds)]
                yield pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    return pyarrow.RecordBatchReader.from_batches(schema, batches(view))
