package bristlecone

/*
#include "shim.h"
*/
import "C"

import "iter"

// Item is a key with its value.
type Item[K, V any] struct {
	Key   K
	Value V
}

// Scan is a range of keys, in ascending order. Each method returns a narrower one, or the same in another order.
//
// An iteration holds no lock. It returns every key that exists throughout, each once, while others write. Its last pair
// is an error, if there is one: damage, an argument of another kind, or a handle that was closed meanwhile.
type Scan[K, V any] struct {
	tree     *Tree[K, V]
	from, to []byte
	isPrefix bool
	flags    C.uint32_t
	reverse  bool
	limit    int
	err      error
	// The object that sees the items; at most one of these.
	snapshot    *Snapshot
	transaction *Transaction
}

// Scan returns the range of all keys.
func (t *Tree[K, V]) Scan() Scan[K, V] { return Scan[K, V]{tree: t, limit: -1} }

// Prefix returns the range of the keys that begin with this one, of a tree whose keys are strings, bytes or arrays.
func (t *Tree[K, V]) Prefix(prefix K) Scan[K, V] {
	of := t.Scan()
	of.from, of.isPrefix = of.bound(prefix), true
	return of
}

// bound converts a key. The bytes of a bound are not nil.
func (s *Scan[K, V]) bound(key K) []byte {
	if s.err == nil {
		s.err = s.tree.isOpen()
	}
	if s.err == nil && s.isPrefix {
		s.err = usage("a range has a prefix or bounds, not both")
	}
	if s.err != nil {
		return nil
	}
	bytes, err := encode(s.tree.keys, make([]byte, 0, 16), &key)
	s.err = err
	return bytes
}

// From begins the range at a key.
func (s Scan[K, V]) From(key K) Scan[K, V] {
	s.from = s.bound(key)
	s.flags &^= C.BRISTLECONE_FROM_EXCLUDED
	return s
}

// After begins the range behind a key.
func (s Scan[K, V]) After(key K) Scan[K, V] {
	s.from = s.bound(key)
	s.flags |= C.BRISTLECONE_FROM_EXCLUDED
	return s
}

// Before ends the range before a key.
func (s Scan[K, V]) Before(key K) Scan[K, V] {
	s.to = s.bound(key)
	s.flags &^= C.BRISTLECONE_TO_INCLUDED
	return s
}

// Through ends the range with a key.
func (s Scan[K, V]) Through(key K) Scan[K, V] {
	s.to = s.bound(key)
	s.flags |= C.BRISTLECONE_TO_INCLUDED
	return s
}

// Reverse returns the range in descending order.
func (s Scan[K, V]) Reverse() Scan[K, V] {
	s.reverse = !s.reverse
	return s
}

// Limit ends each iteration after a number of items.
func (s Scan[K, V]) Limit(items int) Scan[K, V] {
	s.limit = max(items, 0)
	return s
}

// Keys iterates over the keys.
func (s Scan[K, V]) Keys() iter.Seq2[K, error] {
	return func(yield func(K, error) bool) {
		for item, err := range s.All() {
			if !yield(item.Key, err) {
				return
			}
		}
	}
}

// Collect returns the items.
func (s Scan[K, V]) Collect() ([]Item[K, V], error) {
	var items []Item[K, V]
	for item, err := range s.All() {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// Remove removes the items of the range in one step and returns their number. After an error nothing has changed; after a
// crash all are removed or none. Lookups and iterations of other goroutines may see a part of it, and writers of the tree
// wait until it ends. A range with a limit, of a snapshot or of a transaction is an error.
func (s Scan[K, V]) Remove() (uint64, error) {
	if s.err == nil {
		s.err = s.tree.isOpen()
	}
	if s.err == nil && (s.limit >= 0 || s.snapshot != nil || s.transaction != nil) {
		s.err = usage("a range with a limit, of a snapshot or of a transaction cannot be removed")
	}
	if s.err != nil {
		return 0, s.err
	}
	from, to := optional(s.from), optional(s.to)
	if s.isPrefix {
		from = first(s.from)
	}
	of := C.br_remove_range(s.tree.c(), from, C.size_t(len(s.from)), to, C.size_t(len(s.to)), s.flags, truth(s.isPrefix))
	err := s.tree.check(of)
	keepAlive(s.tree)
	return uint64(of.word), err
}

// The numbers of items that are fetched in one call.
const (
	chunkFirst = 16
	chunkMax   = 1024
)

// All iterates over the items.
func (s Scan[K, V]) All() iter.Seq2[Item[K, V], error] {
	return func(yield func(Item[K, V], error) bool) {
		next, end, err := s.begin()
		if err != nil {
			yield(Item[K, V]{}, err)
			return
		}
		defer end()
		for chunk, left := chunkFirst, s.limit; left != 0; chunk = min(2*chunk, chunkMax) {
			if left > 0 {
				chunk = min(chunk, left)
			}
			items, err := next(chunk)
			count, ok := s.pass(items, yield)
			if !ok {
				return
			}
			if err != nil {
				yield(Item[K, V]{}, err)
			}
			if err != nil || count == 0 {
				return
			}
			left -= min(count, max(left, 0))
		}
	}
}

// pass yields the items of a chunk; it returns their number, and whether to continue.
func (s *Scan[K, V]) pass(items []byte, yield func(Item[K, V], error) bool) (count int, more bool) {
	for len(items) > 0 {
		var key, value []byte
		key, value, items = takeItem(items)
		item, err := s.item(key, value)
		if !yield(item, err) || err != nil {
			return count, false
		}
		count++
	}
	return count, true
}

func (s *Scan[K, V]) item(key, value []byte) (item Item[K, V], err error) {
	if item.Key, err = decode[K](s.tree.keys, key); err == nil {
		item.Value, err = decode[V](s.tree.values, value)
	}
	return item, err
}

// begin returns functions that fetch items, and that end the iteration.
func (s Scan[K, V]) begin() (next func(items int) ([]byte, error), end func(), err error) {
	if s.err == nil {
		s.err = s.tree.isOpen()
	}
	switch {
	case s.err != nil:
		return nil, nil, s.err
	case s.transaction != nil && s.reverse:
		return nil, nil, usage("a scan of a transaction is in ascending order")
	case s.transaction != nil:
		return s.ofTransaction(), func() {}, nil
	}
	return s.ofIterator()
}

// ofIterator opens an iterator over the tree or a snapshot.
func (s Scan[K, V]) ofIterator() (func(items int) ([]byte, error), func(), error) {
	tree, other := s.tree, &s.tree.object
	var of C.br_result
	switch {
	case s.isPrefix:
		of = C.br_iter_prefix(tree.c(), first(s.from), C.size_t(len(s.from)))
	case s.snapshot != nil:
		other = &s.snapshot.object
		of = C.br_iter(tree.c(), other.c(), optional(s.from), C.size_t(len(s.from)), optional(s.to), C.size_t(len(s.to)), s.flags)
	default:
		of = C.br_iter(tree.c(), 0, optional(s.from), C.size_t(len(s.from)), optional(s.to), C.size_t(len(s.to)), s.flags)
	}
	if err := tree.checkBoth(other, of); err != nil {
		return nil, nil, err
	}
	iterator := &object{members: tree.members, handle: uintptr(of.word), kind: C.BR_ITER}
	if err := tree.members.add(iterator.handle, iterator.kind); err != nil {
		return nil, nil, err
	}
	next := func(items int) ([]byte, error) {
		of := C.br_next(iterator.c(), truth(s.reverse), C.size_t(items))
		fetched, err := data(of), iterator.check(of)
		keepAlive(tree)
		return fetched, err
	}
	return next, func() { _ = iterator.close() }, nil
}

// ofTransaction returns a function that scans from where the last call has ended.
func (s Scan[K, V]) ofTransaction() func(items int) ([]byte, error) {
	tree, other := s.tree, &s.transaction.object
	return func(items int) ([]byte, error) {
		if err := other.isOpen(); err != nil {
			return nil, err
		}
		of := C.br_transaction_scan(other.c(), tree.c(), optional(s.from), C.size_t(len(s.from)), optional(s.to), C.size_t(len(s.to)), s.flags, C.size_t(items))
		fetched, err := data(of), tree.checkBoth(other, of)
		for rest := fetched; len(rest) > 0; {
			s.from, _, rest = takeItem(rest)
			s.flags |= C.BRISTLECONE_FROM_EXCLUDED
		}
		keepAlive(tree)
		return fetched, err
	}
}
