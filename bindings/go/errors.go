package bristlecone

import (
	"errors"
	"io/fs"
)

// Status is the reason of an [Error]. Its values are errors, for [errors.Is].
type Status int

// The statuses of the C library, and ErrClosed.
const (
	// ErrFailed means that the system returned an error, or that a check found damage.
	ErrFailed Status = 1
	// ErrUsage means that an argument is invalid, or that a tree has other kinds.
	ErrUsage Status = 2
	// ErrInUse means that another process has the pool open, that the tree is open, or that another goroutine uses
	// the batch or transaction.
	ErrInUse Status = 3
	// ErrAbsent means that the pool, the tree or the journal does not exist. It matches [fs.ErrNotExist].
	ErrAbsent Status = 4
	// ErrCorrupted means that the file is not a pool, is corrupted, or was written by a newer version.
	ErrCorrupted Status = 5
	// ErrFull means that the pool or the file system is full.
	ErrFull Status = 6
	// ErrForked means that the handle was opened by another process, of which this one is a child.
	ErrForked Status = 34
	// ErrReadOnly means that the pool is open for reading only. It matches [fs.ErrPermission].
	ErrReadOnly Status = 35
	// ErrDurabilityLost means that the medium failed to make data durable, and that the outcome of the operation is
	// unknown: reopen the pool.
	ErrDurabilityLost Status = 36
	// ErrBug means that the library has a bug. The pool loses no acknowledged data.
	ErrBug Status = 38
	// ErrConflict means that a concurrent write changed data that a transaction read, or that a condition of a batch
	// does not hold.
	ErrConflict Status = 39
	// ErrSnapshotTooOld means that a snapshot exceeded its limit, or that the tree was cleared since.
	ErrSnapshotTooOld Status = 40
	// ErrNoWriter means that no process writes to the pool that is followed.
	ErrNoWriter Status = 41
	// ErrPruned means that the journal does not keep the requested changes any more, or that the cursor held back too much
	// and was dropped: see [PrunedError].
	ErrPruned Status = 42
	// ErrClosed means that the handle, or its pool, was closed. It matches [fs.ErrClosed].
	ErrClosed Status = -1
)

var names = map[Status]string{
	ErrFailed: "failed", ErrUsage: "wrong usage", ErrInUse: "in use", ErrAbsent: "absent", ErrCorrupted: "corrupted",
	ErrFull: "full", ErrForked: "opened by another process", ErrReadOnly: "read only",
	ErrDurabilityLost: "durability lost", ErrBug: "bug in the library", ErrConflict: "conflict",
	ErrSnapshotTooOld: "snapshot too old", ErrNoWriter: "no writer", ErrPruned: "pruned",
	ErrClosed: "closed",
}

// Error returns a brief description.
func (s Status) Error() string {
	if name, ok := names[s]; ok {
		return "bristlecone: " + name
	}
	return "bristlecone: unknown status"
}

// Is reports whether the status is also an error of package [io/fs].
func (s Status) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return s == ErrAbsent
	case fs.ErrClosed:
		return s == ErrClosed
	case fs.ErrPermission:
		return s == ErrReadOnly
	}
	return false
}

// Error is an error of the library.
type Error struct {
	// Status is the reason.
	Status Status
	// Message names the object, and what to do.
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return "bristlecone: " + e.Message }

// Unwrap returns the status.
func (e *Error) Unwrap() error { return e.Status }

// ManyError is an error of a call for many keys.
type ManyError struct {
	// Done is the number of items, from the first on, that were processed.
	Done int
	// Err is the reason why the next item was not.
	Err error
}

// Error returns the message.
func (e *ManyError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ManyError) Unwrap() error { return e.Err }

// PrunedError is an error of a stream of changes, with [ErrPruned]: read all items, and continue from the oldest LSN, or
// from a new cursor.
type PrunedError struct {
	// OldestLSN is that of the oldest commit that is kept.
	OldestLSN uint64
	// Err is the error of the library.
	Err error
}

// Error returns the message.
func (e *PrunedError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the library.
func (e *PrunedError) Unwrap() error { return e.Err }

func usage(message string) error { return &Error{ErrUsage, message} }

var errClosed = &Error{ErrClosed, "the handle or its pool was closed"}

func statusOf(err error) Status {
	var status Status
	errors.As(err, &status)
	return status
}
