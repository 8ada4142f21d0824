"""Trees as of one moment: as snapshots see them, and transactions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeVar

from ._bristlecone import Items, Moment, Pool, Tree
from ._errors import ConflictError

_K = TypeVar("_K")
_V = TypeVar("_V")
_T = TypeVar("_T")

# Maximum number of attempts of a transaction in `transact`.
_ATTEMPTS = 256

_ABSENT = object()


class SnapshotTree(Mapping[_K, _V]):
    """A tree as it was when a snapshot was taken."""

    __slots__ = ("_moment", "_tree")

    def __init__(self, moment: Moment, tree: Tree[_K, _V]) -> None:
        self._moment = moment
        self._tree = tree

    def __getitem__(self, key: _K) -> _V:
        value = self._moment.get(self._tree, key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value  # type: ignore[no-any-return]

    def __contains__(self, key: object) -> bool:
        return self._moment.get(self._tree, key, _ABSENT) is not _ABSENT

    def __iter__(self) -> Iterator[_K]:
        return self._items("keys")

    def __reversed__(self) -> Iterator[_K]:
        return self._items("keys", reverse=True)

    def __len__(self) -> int:
        """Counts the items, all of which it reads."""
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(True for _ in self)

    def _items(
        self,
        what: str,
        start: _K | None = None,
        stop: _K | None = None,
        reverse: bool = False,
        inclusive: tuple[bool, bool] = (True, False),
    ) -> Items[Any]:
        return self._moment.items(self._tree, what, (start, stop), inclusive, reverse)

    def range(
        self,
        start: _K | None = None,
        stop: _K | None = None,
        reverse: bool = False,
        *,
        inclusive: tuple[bool, bool] = (True, False),
    ) -> Items[tuple[_K, _V]]:
        """Returns an iterator over the items whose keys lie within bounds, in order."""
        return self._items("items", start, stop, reverse, inclusive)

    def first(self) -> tuple[_K, _V] | None:
        """Returns the item with the smallest key, or `None`."""
        return next(self.range(), None)

    def last(self) -> tuple[_K, _V] | None:
        """Returns the item with the largest key, or `None`."""
        return next(self.range(reverse=True), None)

    def __repr__(self) -> str:
        return f"<bristlecone.{type(self).__name__} of {self._tree!r}>"


class TransactionTree(SnapshotTree[_K, _V], MutableMapping[_K, _V]):
    """A tree as a transaction sees it: as it was when that began, with what it wrote itself."""

    __slots__ = ()

    def __setitem__(self, key: _K, value: _V) -> None:
        self._moment.put(self._tree, key, value)

    def __delitem__(self, key: _K) -> None:
        if key not in self:
            raise KeyError(key)
        self._moment.remove(self._tree, key)

    def discard(self, key: _K) -> None:
        """Removes a key, if it is there. This reads nothing, so that it meets no conflict."""
        self._moment.remove(self._tree, key)


class _Moment:
    __slots__ = ("_moment", "__weakref__")

    def __init__(self, moment: Moment) -> None:
        self._moment = moment

    def close(self) -> None:
        """Ends it. Again, this does nothing."""
        self._moment.end()

    @property
    def closed(self) -> bool:
        """Whether it has ended, or its pool is closed."""
        return self._moment.ended

    def __repr__(self) -> str:
        return f"<bristlecone.{type(self).__name__}{' closed' if self.closed else ''}>"


class Snapshot(_Moment):
    """All trees of a pool as they were at one moment.

    What is changed afterwards is kept in memory as long as a snapshot may need it: close it soon, or at the end of a
    `with` block.
    """

    __slots__ = ()

    def __getitem__(self, tree: Tree[_K, _V]) -> SnapshotTree[_K, _V]:
        return SnapshotTree(self._moment, tree)

    @property
    def bytes(self) -> int:
        """Bytes of memory that are kept for it, about."""
        return self._moment.bytes

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Transaction(_Moment):
    """Reads of one moment, and changes that are made together, if nothing that was read has changed meanwhile."""

    __slots__ = ()

    def __getitem__(self, tree: Tree[_K, _V]) -> TransactionTree[_K, _V]:
        return TransactionTree(self._moment, tree)

    def commit(self) -> None:
        """Makes the changes in one step. Raises `ConflictError` if others were faster, and nothing has changed then."""
        self._moment.commit()

    def rollback(self) -> None:
        """Gives up what was written."""
        self.close()

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: object, raised: object, trace: object) -> None:
        if kind is not None:
            self.close()
        elif not self.closed:
            self.commit()


def transact(pool: Pool, function: Callable[[Transaction], _T]) -> _T:
    """Calls a function with a transaction and commits it; calls it again, later and later, if others were faster."""
    for attempt in range(_ATTEMPTS):
        try:
            with pool.transaction() as transaction:
                result = function(transaction)
            return result
        except ConflictError:
            if attempt + 1 == _ATTEMPTS:
                raise
            time.sleep(random.random() * min(attempt, 50) * 1e-5)
    raise AssertionError
