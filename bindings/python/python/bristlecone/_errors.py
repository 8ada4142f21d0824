"""What goes wrong: every exception of the package derives from `Error` and from the built-in that it resembles."""

from __future__ import annotations

import errno as _errno
import os as _os


class Error(Exception):
    """What every exception of this package is."""

    #: For multi-key calls: the number of items completed before the error.
    done: int


class _OsError(Error, OSError):
    """Takes the message as one text, and keeps `errno` and `filename` beside it."""

    _errno: int = _errno.EIO

    def __init__(
        self, message: str = "", *, errno: int | None = None, filename: str | _os.PathLike[str] | None = None
    ) -> None:
        super().__init__(message)
        self.errno = self._errno if errno is None else errno
        self.strerror = message
        self.filename = None if filename is None else _os.fspath(filename)

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.strerror,), {"errno": self.errno, "filename": self.filename}


class _KeyError(Error, KeyError):
    # A KeyError prints its argument's repr; this one prints a sentence.
    def __str__(self) -> str:
        return Exception.__str__(self)


class IoError(_OsError):
    """A system call failed."""


class PermissionDeniedError(IoError, PermissionError):
    """The system does not allow it."""

    _errno = _errno.EACCES


class PoolNotFoundError(_OsError, FileNotFoundError):
    """There is no pool at this path."""

    _errno = _errno.ENOENT


class PoolExistsError(_OsError, FileExistsError):
    """Something is at this path already."""

    _errno = _errno.EEXIST


class NotAPoolError(Error, ValueError):
    """The file is not a pool."""

    filename: str

    def __init__(self, message: str = "", *, filename: str | _os.PathLike[str] = "") -> None:
        super().__init__(message)
        self.filename = _os.fspath(filename)


class NewerError(Error, RuntimeError):
    """The pool was written by a newer version."""


class CorruptedError(Error, RuntimeError):
    """The pool contradicts itself."""


class InUseError(_OsError, BlockingIOError):
    """Another process, or another handle of this one, has the pool open."""

    _errno = _errno.EAGAIN

    #: The process that holds it, if known.
    pid: int | None

    def __init__(self, message: str = "", *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class ForkedError(Error, RuntimeError):
    """The pool was opened by another process, of which this one is a child: open it again."""


class NoRoomError(_OsError):
    """There is no space left: nothing has changed, and reads and removals go on."""

    _errno = _errno.ENOSPC


class PoolFullError(NoRoomError):
    """The pool has its maximum: remove something, or open it with a larger `max_bytes`."""


class MaximumFixedError(Error, ValueError):
    """The pool cannot have so large a maximum."""


class NoSuchTreeError(_KeyError):
    """There is no tree of this name."""


class TreeExistsError(Error, ValueError):
    """There is a tree of this name already."""


class TreeInUseError(Error, RuntimeError):
    """There is a handle to the tree: close it first."""


class MismatchError(Error, TypeError):
    """A key, a value or a tree is of another type than the tree in the pool."""


class InvalidError(Error, ValueError):
    """A parameter is outside its range."""


class TooLongError(InvalidError):
    """A key, a value or a name is longer than it can be."""


class ConflictError(Error, RuntimeError):
    """Others changed what a transaction read, or a condition of a batch does not hold: nothing has changed."""


class SnapshotTooOldError(Error, RuntimeError):
    """More has changed since a snapshot than it may keep, or the tree was cleared: take another one."""


class DurabilityLostError(_OsError):
    """The medium refused to make data durable: nothing since may be trusted; open the pool again."""


class ReadOnlyError(_OsError, PermissionError):
    """The pool is open for reading only."""

    _errno = _errno.EROFS


class NoWriterError(_OsError, ConnectionError):
    """No process writes to a pool that is followed, or none that can be followed; it may be read again when one does."""

    _errno = _errno.ENOTCONN


class PrunedError(_KeyError):
    """The journal does not keep the requested changes any more: read the items, and continue from `oldest_lsn`."""

    #: LSN of the oldest change that is kept.
    oldest_lsn: int

    def __init__(self, message: str = "", *, oldest_lsn: int = 0) -> None:
        super().__init__(message)
        self.oldest_lsn = oldest_lsn

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self.args, {"oldest_lsn": self.oldest_lsn}


class NoSuchCursorError(_KeyError):
    """The journal has no cursor of this name."""


class CursorDroppedError(_KeyError):
    """The cursor held back too much of the journal, and was dropped: read the items, and create it again."""


class ClosedError(Error, ValueError):
    """The pool or the tree is closed."""
