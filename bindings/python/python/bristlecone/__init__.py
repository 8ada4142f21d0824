"""Ordered key-value indexes that survive crashes: concurrent B+-trees in shared and persistent memory.

>>> import bristlecone
>>> with bristlecone.open("/dev/shm/trees.pool", create=True) as pool:
...     ages = pool.tree("ages", str, int)
...     ages["Methuselah"] = 4857  # durable when it returns
...     list(ages.items("M", "N"))
[('Methuselah', 4857)]
"""

import atexit as _atexit
from collections.abc import Iterator as _Iterator
from collections.abc import Mapping as _Mapping
from collections.abc import MutableMapping as _MutableMapping

from ._bristlecone import (
    ABSENT,
    Batch,
    Changes,
    Commit,
    ExpiringTree,
    Items,
    Pool,
    Ticket,
    Tree,
    View,
    __version__,
    _close_all,
    open,
)
from ._changes import Change
from ._errors import (
    ClosedError,
    ConflictError,
    CorruptedError,
    CursorDroppedError,
    DurabilityLostError,
    Error,
    ForkedError,
    InUseError,
    InvalidError,
    IoError,
    MaximumFixedError,
    MismatchError,
    NewerError,
    NoRoomError,
    NoSuchCursorError,
    NoSuchTreeError,
    NoWriterError,
    NotAPoolError,
    PermissionDeniedError,
    PoolExistsError,
    PoolFullError,
    PoolNotFoundError,
    PrunedError,
    ReadOnlyError,
    SnapshotTooOldError,
    TooLongError,
    TreeExistsError,
    TreeInUseError,
)
from ._moments import Snapshot, SnapshotTree, Transaction, TransactionTree

__all__ = [
    "ABSENT",
    "Batch",
    "Change",
    "Changes",
    "ClosedError",
    "Commit",
    "ConflictError",
    "CorruptedError",
    "CursorDroppedError",
    "DurabilityLostError",
    "Error",
    "ExpiringTree",
    "ForkedError",
    "InUseError",
    "InvalidError",
    "IoError",
    "Items",
    "MaximumFixedError",
    "MismatchError",
    "NewerError",
    "NoRoomError",
    "NoSuchCursorError",
    "NoSuchTreeError",
    "NoWriterError",
    "NotAPoolError",
    "PermissionDeniedError",
    "Pool",
    "PoolExistsError",
    "PoolFullError",
    "PoolNotFoundError",
    "PrunedError",
    "ReadOnlyError",
    "Snapshot",
    "SnapshotTooOldError",
    "SnapshotTree",
    "Ticket",
    "TooLongError",
    "Transaction",
    "TransactionTree",
    "Tree",
    "TreeExistsError",
    "TreeInUseError",
    "View",
    "__version__",
    "open",
]

_Mapping.register(Pool)
_MutableMapping.register(Tree)
_Iterator.register(Items)
_Iterator.register(Changes)

# A cleanly closed pool needs no recovery; other pools lose nothing either.
_atexit.register(_close_all)
