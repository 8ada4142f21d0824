package bristlecone

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"encoding/binary"
	"iter"
	"strings"
	"sync"
	"time"
)

// ChangeKind says what a change of a [Commit] did.
type ChangeKind int

// The kinds of changes.
const (
	// ChangePut gave a key a value.
	ChangePut ChangeKind = C.BRISTLECONE_CHANGE_PUT
	// ChangeRemove removed a key.
	ChangeRemove ChangeKind = C.BRISTLECONE_CHANGE_REMOVE
	// ChangeCreate created a tree. If it was created with items, they follow in the same commit.
	ChangeCreate ChangeKind = C.BRISTLECONE_CHANGE_CREATE
	// ChangeDrop dropped a tree, with all items.
	ChangeDrop ChangeKind = C.BRISTLECONE_CHANGE_DROP
	// ChangeRename renamed a tree.
	ChangeRename ChangeKind = C.BRISTLECONE_CHANGE_RENAME
	// ChangeClear removed all items of a tree.
	ChangeClear ChangeKind = C.BRISTLECONE_CHANGE_CLEAR
	// ChangeOther is a change that this version does not know.
	ChangeOther ChangeKind = C.BRISTLECONE_CHANGE_OTHER
)

var changeNames = [...]string{
	ChangePut: "put", ChangeRemove: "remove", ChangeCreate: "create", ChangeDrop: "drop", ChangeRename: "rename",
	ChangeClear: "clear", ChangeOther: "other",
}

// String returns the name of the kind, such as "put".
func (k ChangeKind) String() string {
	if k < ChangePut || k > ChangeOther {
		return changeNames[ChangeOther]
	}
	return changeNames[k]
}

// Change is a change of a tree.
type Change struct {
	// What the change did.
	What ChangeKind
	// Tree is the name of the tree before the change; of a created tree, its name.
	Tree string
	// TreeID is its number, which no other tree had at the same time. NewTreeID is another one after ChangeClear.
	TreeID, NewTreeID uint32
	// KeyKind and ValueKind are the tree's kinds.
	KeyKind, ValueKind string
	// Key is the key of a put or remove, and Value the new value of a put, of the types of a tree of any.
	Key, Value any
	// Existed says, for a put or remove, whether the key was present before. It is not valid if the write did not look.
	Existed Option[bool]
	// RenamedTo is the new name of a renamed tree.
	RenamedTo string
}

// Commit contains changes that were applied together: a write, up to 16 writes of a call with several keys, a batch or
// transaction, or a change of the trees.
type Commit struct {
	// LSN is that of the commit, and NextLSN that from which a later stream continues behind it.
	LSN, NextLSN uint64
	// Time is when it was written to the journal. It is never earlier than that of an earlier commit.
	Time time.Time
	// Changes are at least one.
	Changes []Change
}

// Changes is a stream of the durable changes of a pool with a journal, in the order of their LSNs. One goroutine at a
// time may use it; a second one gets [ErrInUse]. Any goroutine may close it, which ends the waiting of another one.
type Changes struct {
	object
	pool  *Pool
	mutex sync.Mutex
	// After an error within a commit all later calls return it.
	failed error
	kinds  map[string]*codec
}

// DurableEnd is the LSN behind the last durable commit, for [Pool.CreateCursor].
const DurableEnd = ^uint64(0)

// Changes opens a stream from an LSN on: 0 for the first change, or the NextLSN of a commit that was seen before.
//
// It returns a [*PrunedError] if a checkpoint has removed the commit at that LSN, and [ErrUsage] for a pool without a
// journal, or an LSN behind the durable end.
func (p *Pool) Changes(from uint64) (*Changes, error) {
	return p.changes(func(pool C.uintptr_t) C.br_result { return C.br_changes(pool, nil, C.uint64_t(from)) })
}

// ChangesOf opens a stream at a cursor, which [Changes.Advance] moves. One stream at a time has the cursor.
//
// It returns [ErrAbsent] if no cursor has this name, [ErrInUse] while another stream has it, and a [*PrunedError] if it
// was dropped because it held back too much.
func (p *Pool) ChangesOf(cursor string) (changes *Changes, err error) {
	failed := withNames(func(names []*C.char) error {
		changes, err = p.changes(func(pool C.uintptr_t) C.br_result { return C.br_changes(pool, names[0], 0) })
		return err
	}, cursor)
	return changes, failed
}

func (p *Pool) changes(open func(pool C.uintptr_t) C.br_result) (*Changes, error) {
	of, err := p.call(open)
	if err != nil {
		return nil, p.pruned(err)
	}
	opened := &Changes{pool: p, kinds: map[string]*codec{}}
	if err := track(p.members, opened, &opened.object, uintptr(of.word), C.BR_CHANGES); err != nil {
		return nil, err
	}
	return opened, nil
}

// pruned adds the oldest LSN to an error for changes that are not kept any more.
func (p *Pool) pruned(err error) error {
	if statusOf(err) != ErrPruned {
		return err
	}
	status, failed := p.JournalStatus()
	if failed != nil {
		return err
	}
	return &PrunedError{OldestLSN: status.OldestLSN, Err: err}
}

// Close closes the stream; its cursor stays. A goroutine that waits on the stream gets [ErrClosed]. Again, it does
// nothing.
func (c *Changes) Close() error {
	if c == nil || c.members == nil {
		return errClosed
	}
	return c.close()
}

// How long one call of the library waits. A context that is done is noticed after this time.
const changesWait = 20 * time.Millisecond

// Next waits for the next commit until the context is done, and then returns the context's error. The stream is intact
// after that.
//
// It returns a [*PrunedError] if the next commit is not kept any more, and [ErrClosed] once the stream or its pool is
// closed.
func (c *Changes) Next(ctx context.Context) (*Commit, error) {
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if commit, err := c.fetch(changesWait); commit != nil || err != nil {
			return commit, err
		}
	}
}

// TryNext returns the next commit, or nil if none is durable yet. It does not wait.
func (c *Changes) TryNext() (*Commit, error) {
	unlock, err := c.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	return c.fetch(0)
}

// All iterates over the commits that are durable, without waiting for others. Its last pair is an error, if there is one.
func (c *Changes) All() iter.Seq2[*Commit, error] { return c.each(c.TryNext) }

// Follow iterates over the commits, and waits for more until the context is done. Its last pair is an error: that of the
// context, or of the stream.
func (c *Changes) Follow(ctx context.Context) iter.Seq2[*Commit, error] {
	return c.each(func() (*Commit, error) { return c.Next(ctx) })
}

func (c *Changes) each(next func() (*Commit, error)) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		for {
			commit, err := next()
			if commit == nil && err == nil {
				return
			}
			if !yield(commit, err) || err != nil {
				return
			}
		}
	}
}

// Advance moves the cursor of the stream to an LSN, durably: usually the NextLSN of the last commit whose effects are
// durable. The next stream of the cursor begins there, also after a crash.
func (c *Changes) Advance(lsn uint64) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	err = c.check(C.br_changes_advance(c.c(), C.uint64_t(lsn)))
	keepAlive(c)
	return c.pool.pruned(err)
}

// lock keeps other goroutines out of an open stream.
func (c *Changes) lock() (unlock func(), err error) {
	if c == nil {
		return nil, errClosed
	}
	if err := c.isOpen(); err != nil {
		return nil, err
	}
	if !c.mutex.TryLock() {
		return nil, &Error{ErrInUse, "another goroutine uses the stream of changes"}
	}
	return c.mutex.Unlock, nil
}

// fetch returns the next commit, or nil if none becomes durable in a time.
func (c *Changes) fetch(wait time.Duration) (*Commit, error) {
	if c.failed != nil {
		return nil, c.failed
	}
	commit, err := c.read(wait)
	if err != nil && statusOf(err) != ErrClosed {
		c.failed = err
	}
	return commit, err
}

// read collects the changes of a commit.
func (c *Changes) read(wait time.Duration) (commit *Commit, err error) {
	for {
		of := C.br_changes_next(c.c(), C.int64_t(wait/time.Millisecond))
		bytes, err := data(of), c.check(of)
		keepAlive(c)
		if err != nil {
			return nil, c.pool.pruned(err)
		}
		if of.status != 0 {
			return nil, c.isOpenStill()
		}
		if commit == nil {
			commit = &Commit{}
		}
		for len(bytes) > 0 {
			if bytes, err = c.take(bytes, commit); err != nil {
				return nil, err
			}
		}
		if of.there != 0 {
			return commit, nil
		}
	}
}

// isOpenStill returns ErrClosed if the stream was closed while it waited.
func (c *Changes) isOpenStill() error {
	if c.closed.Load() || !c.members.has(c.handle) {
		return errClosed
	}
	return nil
}

const (
	changeWords = 13
	noName      = ^uint64(0)
)

// take adds the first change in a chunk to a commit; it returns what is behind it.
func (c *Changes) take(from []byte, to *Commit) (rest []byte, err error) {
	var words [changeWords]uint64
	for at := range words {
		words[at] = binary.NativeEndian.Uint64(from[8*at:])
	}
	rest = from[8*changeWords:]
	part := func(bytes uint64) []byte {
		taken := rest[:bytes:bytes]
		rest = rest[bytes:]
		return taken
	}
	to.LSN, to.NextLSN, to.Time = words[0], words[1], time.UnixMilli(int64(words[2]))
	change := Change{What: ChangeKind(words[3]), TreeID: uint32(words[5]), NewTreeID: uint32(words[6])}
	if existed := int64(words[4]); existed >= 0 {
		change.Existed = Some(existed == 1)
	}
	change.Tree, change.KeyKind, change.ValueKind = string(part(words[7])), string(part(words[8])), string(part(words[9]))
	key, value := part(words[10]), part(words[11])
	if words[12] != noName {
		change.RenamedTo = string(part(words[12]))
	}
	switch change.What {
	case ChangePut:
		if change.Value, err = c.datum(change.ValueKind, value); err != nil {
			return nil, err
		}
		fallthrough
	case ChangeRemove:
		if change.Key, err = c.datum(change.KeyKind, key); err != nil {
			return nil, err
		}
	}
	to.Changes = append(to.Changes, change)
	return rest, nil
}

// datum reads a key or a value of a kind.
func (c *Changes) datum(kind string, bytes []byte) (any, error) {
	of, ok := c.kinds[kind]
	if !ok {
		var err error
		if of, err = dynamicCodec(kind); err != nil {
			return nil, err
		}
		c.kinds[strings.Clone(kind)] = of
	}
	return decode[any](of, bytes)
}

// CreateCursor creates a cursor, and returns its LSN: commits from there on are kept until the cursor is moved or dropped,
// up to Options.CursorLimit. With [DurableEnd] it begins behind the last durable commit.
//
// A name has 1 to 64 letters, digits, dots, hyphens and underscores. It returns [ErrUsage] for another name, or one that
// a cursor has, and a [*PrunedError] if the commit at the LSN is not kept any more.
func (p *Pool) CreateCursor(name string, lsn uint64) (begun uint64, err error) {
	err = withNames(func(names []*C.char) error {
		of, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_create_cursor(pool, names[0], C.uint64_t(lsn)) })
		begun = uint64(of.word)
		return p.pruned(err)
	}, name)
	return begun, err
}

// DropCursor removes a cursor, or what is left of one that was dropped. It returns [ErrAbsent] if no cursor has this name.
func (p *Pool) DropCursor(name string) error { return p.manage(C.BR_DROP_CURSOR, name, "", 0) }

// Cursor is a position in the journal with a name.
type Cursor struct {
	Name string
	// LSN is where the next stream begins: commits from there on are kept.
	LSN uint64
	// PinnedBytes are the bytes of the files that are kept only for it.
	PinnedBytes uint64
	// Time is when it was advanced last.
	Time time.Time
	// Dropped says whether it held back too much, so that nothing is kept for it any more.
	Dropped bool
}

// Cursors returns the cursors, ordered by name. It returns [ErrAbsent] for a pool that does not write a journal.
func (p *Pool) Cursors() ([]Cursor, error) {
	of, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_cursors(pool) })
	var cursors []Cursor
	for bytes := data(of); len(bytes) > 0; {
		word := func(at int) uint64 { return binary.NativeEndian.Uint64(bytes[8*at:]) }
		name := bytes[40 : 40+word(4)]
		cursors = append(cursors, Cursor{string(name), word(0), word(1), time.UnixMilli(int64(word(2))), word(3) != 0})
		bytes = bytes[40+len(name):]
	}
	return cursors, err
}
