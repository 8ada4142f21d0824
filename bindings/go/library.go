package bristlecone

/*
#cgo pkg-config: bristlecone
#cgo CFLAGS: -std=c11 -D_GNU_SOURCE
#cgo noescape br_get
#cgo nocallback br_get
#cgo noescape br_contains
#cgo nocallback br_contains
#cgo noescape br_write
#cgo nocallback br_write
#cgo noescape br_expiring_write
#cgo nocallback br_expiring_write
#cgo noescape br_expiry
#cgo nocallback br_expiry
#cgo noescape br_set_expiry
#cgo nocallback br_set_expiry
#cgo noescape br_change
#cgo nocallback br_change
#cgo noescape br_iter
#cgo nocallback br_iter
#cgo noescape br_iter_prefix
#cgo nocallback br_iter_prefix
#cgo noescape br_transaction_scan
#cgo nocallback br_transaction_scan
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Outcomes that are no errors.
const (
	statusAbsent   = C.BRISTLECONE_ABSENT
	statusPresent  = C.BRISTLECONE_PRESENT
	statusDiffers  = C.BRISTLECONE_DIFFERS
	statusTooSmall = C.BRISTLECONE_TOO_SMALL
)

// members are the open handles of a pool, each with its type.
type members struct {
	mutex  sync.Mutex
	open   map[uintptr]C.int
	closed bool
	// Held by the goroutine that closes the pool; the pool's handle is 0 then.
	closing sync.Mutex
	pool    uintptr
}

// An object is a handle of the C library: a number, which the library looks up. So any value of it is safe.
type object struct {
	members *members
	handle  uintptr
	kind    C.int
	closed  atomic.Bool
}

// How long closing waits for calls of other goroutines.
const (
	closeWait = 10 * time.Second
	closeStep = time.Millisecond
)

// add notes a new handle. In a pool that was closed meanwhile the handle is closed.
func (m *members) add(handle uintptr, kind C.int) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.closed {
		closeHandle(handle, kind)
		return errClosed
	}
	m.open[handle] = kind
	return nil
}

// remove forgets a handle; it reports whether it was open.
func (m *members) remove(handle uintptr) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	_, ok := m.open[handle]
	delete(m.open, handle)
	return ok
}

// has reports whether a handle is open.
func (m *members) has(handle uintptr) bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	_, ok := m.open[handle]
	return ok && !m.closed
}

// close closes everything that is open, and then the pool. After an error it may be called again.
func (m *members) close() error {
	m.closing.Lock()
	defer m.closing.Unlock()
	for handle, kind := range m.shut() {
		// Others that close a handle remove it first.
		if !m.remove(handle) {
			continue
		}
		if err := closeHandle(handle, kind); err != nil {
			m.mutex.Lock()
			m.open[handle] = kind
			m.mutex.Unlock()
			return err
		}
	}
	if m.pool == 0 {
		return nil
	}
	err := closeHandle(m.pool, C.BR_POOL)
	if err == nil {
		m.pool = 0
	}
	return err
}

// shut refuses new handles; it returns the open ones.
func (m *members) shut() map[uintptr]C.int {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.closed = true
	return maps.Clone(m.open)
}

func (m *members) isClosed() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.closed
}

// closeHandle closes a handle, after the calls of other goroutines on it.
func closeHandle(handle uintptr, kind C.int) error {
	for begun := time.Now(); ; time.Sleep(closeStep) {
		err := failure(C.br_close(kind, C.uintptr_t(handle)))
		if statusOf(err) != ErrInUse || time.Since(begun) > closeWait {
			return err
		}
	}
}

// track returns an object for a new handle, which is closed when the object is unreachable.
func track[T any](m *members, owner *T, to *object, handle uintptr, kind C.int) error {
	if err := m.add(handle, kind); err != nil {
		return err
	}
	to.members, to.handle, to.kind = m, handle, kind
	runtime.AddCleanup(owner, func(handle uintptr) {
		if m.remove(handle) {
			_ = closeHandle(handle, kind)
		}
	}, handle)
	return nil
}

func addPoolCleanup(pool *Pool) {
	runtime.AddCleanup(pool, func(m *members) { _ = m.close() }, pool.members)
}

// keepAlive keeps an object from being closed as unreachable during a call on it.
func keepAlive(of any) { runtime.KeepAlive(of) }

// close closes the handle. Again, it does nothing.
func (o *object) close() error {
	if o.members == nil || o.closed.Swap(true) || !o.members.remove(o.handle) {
		return nil
	}
	return closeHandle(o.handle, o.kind)
}

func (o *object) c() C.uintptr_t { return C.uintptr_t(o.handle) }

// isOpen returns ErrClosed for an object that was closed.
func (o *object) isOpen() error {
	if o.members == nil || o.closed.Load() {
		return errClosed
	}
	return nil
}

// check returns the error of a call on the object.
func (o *object) check(of C.br_result) error {
	err := failure(of)
	if statusOf(err) == ErrUsage && !o.members.has(o.handle) {
		return errClosed
	}
	return err
}

// failure returns the error of a result, and frees its message. Results of operations on a key are no errors.
func failure(of C.br_result) error {
	if of.message == nil {
		return nil
	}
	message := C.GoString(of.message)
	C.free(unsafe.Pointer(of.message))
	return &Error{Status(of.status), message}
}

// data returns a copy of the data of a result, and frees it.
func data(of C.br_result) []byte {
	if of.data == nil {
		return nil
	}
	defer C.free(of.data)
	return append(make([]byte, 0, of.bytes), unsafe.Slice((*byte)(of.data), of.bytes)...)
}

var nothing = new([1]byte)

// first returns a pointer to bytes, which is not null even if there are none.
func first(bytes []byte) unsafe.Pointer {
	if len(bytes) == 0 {
		return unsafe.Pointer(nothing)
	}
	return unsafe.Pointer(unsafe.SliceData(bytes))
}

// optional returns a pointer to bytes, or a null pointer if they are nil.
func optional(bytes []byte) unsafe.Pointer {
	if bytes == nil {
		return nil
	}
	return first(bytes)
}

// withNames calls use with copies of names. A string of C ends at its first zero, so that names contain none.
func withNames(use func(names []*C.char) error, names ...string) error {
	copied := make([]*C.char, len(names))
	defer func() {
		for _, name := range copied {
			C.free(unsafe.Pointer(name))
		}
	}()
	for at, name := range names {
		if strings.IndexByte(name, 0) >= 0 {
			return usage("a name contains a zero byte")
		}
		copied[at] = C.CString(name)
	}
	return use(copied)
}

// takeItem returns the first item of a chunk, and what is behind it.
func takeItem(from []byte) (key, value, rest []byte) {
	keyBytes, valueBytes := binary.NativeEndian.Uint64(from), binary.NativeEndian.Uint64(from[8:])
	from = from[16:]
	return from[:keyBytes:keyBytes], from[keyBytes : keyBytes+valueBytes : keyBytes+valueBytes], from[keyBytes+valueBytes:]
}

// texts splits data into strings that end with a zero.
func texts(of C.br_result) []string {
	all := strings.Split(string(data(of)), "\x00")
	return all[:len(all)-1]
}

// Version returns the version of the C library.
func Version() string { return C.GoString(C.bristlecone_version()) }
