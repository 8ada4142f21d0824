package bristlecone

/*
#include "shim.h"
*/
import "C"

import "unsafe"

// Snapshot shows all trees of a pool as of one instant, for any number of goroutines. What changes meanwhile is kept in
// memory: close it soon.
type Snapshot struct {
	object
	pool *Pool
}

// Snapshot takes a snapshot that keeps at most about maxBytes of memory; 0 is unlimited. If more is needed, reads of it
// return [ErrSnapshotTooOld].
func (p *Pool) Snapshot(maxBytes uint64) (*Snapshot, error) {
	handle, err := p.begin(C.BR_SNAPSHOT, maxBytes)
	if err != nil {
		return nil, err
	}
	taken := &Snapshot{pool: p}
	return taken, track(p.members, taken, &taken.object, handle, C.BR_SNAPSHOT)
}

// Close releases the snapshot. Again, it does nothing.
func (s *Snapshot) Close() error {
	if s == nil || s.members == nil {
		return errClosed
	}
	return s.close()
}

// Bytes returns the approximate number of bytes of memory that are kept for the snapshot.
func (s *Snapshot) Bytes() (uint64, error) {
	if err := s.isOpen(); err != nil {
		return 0, err
	}
	of := C.br_snapshot_bytes(s.c())
	err := s.check(of)
	keepAlive(s)
	return uint64(of.word), err
}

// SnapshotTree is a tree as of a snapshot.
type SnapshotTree[K, V any] struct {
	tree     *Tree[K, V]
	snapshot *Snapshot
}

// At returns the tree as of a snapshot.
func (t *Tree[K, V]) At(snapshot *Snapshot) SnapshotTree[K, V] {
	return SnapshotTree[K, V]{t, snapshot}
}

// Get returns the snapshot's value of a key.
func (s SnapshotTree[K, V]) Get(key K) (value V, ok bool, err error) {
	if err := s.snapshot.isOpen(); err != nil {
		return value, false, err
	}
	value, ok, err = s.tree.get(C.BR_SNAPSHOT, &s.snapshot.object, key)
	keepAlive(s.snapshot)
	return value, ok, err
}

// Scan returns the range of all keys of the snapshot.
func (s SnapshotTree[K, V]) Scan() Scan[K, V] {
	of := s.tree.Scan()
	of.snapshot, of.err = s.snapshot, s.snapshot.isOpen()
	return of
}

// Batch collects changes of any trees of a pool, which Commit applies atomically. Only one goroutine at a time may use
// it.
type Batch struct {
	object
	pool *Pool
}

// Batch begins a batch.
func (p *Pool) Batch() (*Batch, error) {
	handle, err := p.begin(C.BR_BATCH, 0)
	if err != nil {
		return nil, err
	}
	begun := &Batch{pool: p}
	return begun, track(p.members, begun, &begun.object, handle, C.BR_BATCH)
}

// Commit applies all changes atomically, if all conditions hold, and ends the batch. It returns [ErrConflict] if a
// condition does not hold. After an error nothing has changed, except after [ErrDurabilityLost].
func (b *Batch) Commit() error { return commit(b, &b.object) }

// Discard ends the batch: nothing changes. After the end it does nothing.
func (b *Batch) Discard() { _ = b.close() }

func commit[T any](owner *T, of *object) error {
	if err := of.isOpen(); err != nil {
		return err
	}
	done := C.br_commit(of.kind, of.c())
	err := of.check(done)
	// These leave the handle open.
	if status := statusOf(err); status != ErrInUse && status != ErrForked {
		of.closed.Store(true)
		of.members.remove(of.handle)
	}
	keepAlive(owner)
	return err
}

// BatchTree adds changes of a tree to a batch.
type BatchTree[K, V any] struct {
	tree  *Tree[K, V]
	batch *Batch
}

// To returns the tree for changes in a batch.
func (t *Tree[K, V]) To(batch *Batch) BatchTree[K, V] { return BatchTree[K, V]{t, batch} }

// Put adds a write of a key's value, whether or not the key exists. Of several changes of a key the last one counts.
func (b BatchTree[K, V]) Put(key K, value V) error {
	return b.tree.change(C.BR_PUT, &b.batch.object, &key, &value)
}

// Remove adds the removal of a key, if it exists.
func (b BatchTree[K, V]) Remove(key K) error {
	return b.tree.change(C.BR_REMOVE, &b.batch.object, &key, nil)
}

// Expect adds the condition that a key has a value before the batch.
func (b BatchTree[K, V]) Expect(key K, value V) error {
	return b.tree.change(C.BR_EXPECT, &b.batch.object, &key, &value)
}

// ExpectAbsent adds the condition that a key is absent before the batch.
func (b BatchTree[K, V]) ExpectAbsent(key K) error {
	return b.tree.change(C.BR_EXPECT, &b.batch.object, &key, nil)
}

func (t *Tree[K, V]) change(what C.int, to *object, key *K, value *V) error {
	if err := t.isOpen(); err != nil {
		return err
	}
	if err := to.isOpen(); err != nil {
		return err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err := t.arguments(s, key, value); err != nil {
		return err
	}
	pointer, bytes := unsafe.Pointer(nil), C.size_t(0)
	if value != nil {
		pointer, bytes = first(s.value), C.size_t(len(s.value))
	}
	err := t.checkBoth(to, C.br_change(what, to.kind, to.c(), t.c(), first(s.key), C.size_t(len(s.key)), pointer, bytes))
	keepAlive(t)
	keepAlive(to)
	return err
}

// Transaction reads all trees of a pool as of one instant, together with its own writes. Only one goroutine at a time may
// use it. What others change meanwhile is kept in memory: end it soon.
type Transaction struct {
	object
	pool *Pool
}

// Begin begins a transaction. [Pool.Transact] also repeats it after a conflict.
func (p *Pool) Begin() (*Transaction, error) {
	handle, err := p.begin(C.BR_TRANSACTION, 0)
	if err != nil {
		return nil, err
	}
	begun := &Transaction{pool: p}
	return begun, track(p.members, begun, &begun.object, handle, C.BR_TRANSACTION)
}

// Commit applies the changes atomically, if nothing that the transaction read has changed meanwhile, and ends it.
// Otherwise it returns [ErrConflict]. After an error nothing has changed, except after [ErrDurabilityLost].
func (tx *Transaction) Commit() error { return commit(tx, &tx.object) }

// Rollback ends the transaction: nothing changes. After the end it does nothing.
func (tx *Transaction) Rollback() { _ = tx.close() }

// TransactionTree is a tree as a transaction sees it.
type TransactionTree[K, V any] struct {
	tree        *Tree[K, V]
	transaction *Transaction
}

// In returns the tree as a transaction sees it.
func (t *Tree[K, V]) In(tx *Transaction) TransactionTree[K, V] { return TransactionTree[K, V]{t, tx} }

// Get returns the value of a key.
func (x TransactionTree[K, V]) Get(key K) (value V, ok bool, err error) {
	if err := x.transaction.isOpen(); err != nil {
		return value, false, err
	}
	value, ok, err = x.tree.get(C.BR_TRANSACTION, &x.transaction.object, key)
	keepAlive(x.transaction)
	return value, ok, err
}

// Put writes a key's value, whether or not the key exists.
func (x TransactionTree[K, V]) Put(key K, value V) error {
	return x.tree.change(C.BR_PUT, &x.transaction.object, &key, &value)
}

// Remove removes a key, if it exists.
func (x TransactionTree[K, V]) Remove(key K) error {
	return x.tree.change(C.BR_REMOVE, &x.transaction.object, &key, nil)
}

// Scan returns the range of all keys, in ascending order. The keys that an iteration has passed, or fetched in advance,
// count as read.
func (x TransactionTree[K, V]) Scan() Scan[K, V] {
	of := x.tree.Scan()
	of.transaction, of.err = x.transaction, x.transaction.isOpen()
	return of
}
