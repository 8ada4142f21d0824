package bristlecone

/*
#include "shim.h"
*/
import "C"

import (
	"math"
	"reflect"
	"time"
	"unsafe"
)

// Expiry says when a value expires: a number of milliseconds since 1970, [Never], or [DefaultExpiry].
type Expiry uint64

const (
	// Never is the expiry of a value that does not expire.
	Never Expiry = C.BRISTLECONE_NEVER_EXPIRES
	// DefaultExpiry is the expiry that the tree gives: see [TreeOptions].
	DefaultExpiry Expiry = C.BRISTLECONE_DEFAULT_EXPIRY
)

// At returns the expiry at a time, rounded up to a millisecond. A time before 1970 has passed already.
func At(at time.Time) Expiry {
	whole := at.UnixMilli()
	if at.After(time.UnixMilli(whole)) {
		whole++
	}
	return Expiry(max(whole, 1))
}

// After returns the expiry after a duration from now on.
func After(duration time.Duration) Expiry { return At(time.Now().Add(duration)) }

// Time returns the time. If the value does not expire, ok is false.
func (e Expiry) Time() (at time.Time, ok bool) {
	if e == Never || e > math.MaxInt64 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(e)), true
}

// wholeMillis returns a duration in milliseconds, rounded up.
func wholeMillis(of time.Duration) (uint64, error) {
	if of < 0 {
		return 0, usage("a negative time after which values expire")
	}
	return uint64((of + time.Millisecond - 1) / time.Millisecond), nil
}

// Expiring is a value with its expiry. As a type of values, Expiring[V] makes a tree whose entries expire: see
// [ExpiringTree]. The zero Expiry of an entry is [Never].
type Expiring[V any] struct {
	Value   V
	Expires Expiry
}

func (Expiring[V]) isExpiring() {}

// expiringCodec returns the codec of a type that is an [Expiring], or nil.
func expiringCodec(of reflect.Type) (*codec, error) {
	if of.Kind() != reflect.Struct || !of.Implements(reflect.TypeFor[interface{ isExpiring() }]()) {
		return nil, nil
	}
	inner, err := codecOf(of.Field(0).Type, 1)
	if err != nil {
		return nil, err
	}
	pair, err := tuple([]*codec{fixed("u64", 8), inner}, []uintptr{of.Field(1).Offset, 0})
	if err == nil {
		pair.kind = "Expiring<" + inner.kind + ">"
	}
	return pair, err
}

// ExpiringTree is a tree whose values expire: for its operations, an entry whose time has come is absent. It is for any
// number of goroutines.
type ExpiringTree[K, V any] struct{ live *Tree[K, V] }

// Live returns a handle to a tree of [Expiring] values that takes and shows values of type V. It is closed on its own:
//
//	entries, err := bristlecone.OpenTree[string, bristlecone.Expiring[uint64]](pool, "sessions")
//	sessions, err := bristlecone.Live[string, uint64](entries)
//	err = sessions.Put("ada", 7, bristlecone.After(time.Hour))
//
// Batches, transactions, snapshots, calls of many keys and removals of ranges use the tree of entries. Of a tree of
// [any], V is any. Other trees are an [ErrUsage].
func Live[K, V, E any](entries *Tree[K, E]) (*ExpiringTree[K, V], error) {
	if err := entries.isOpen(); err != nil {
		return nil, err
	}
	of := C.br_tree_expiring(entries.c())
	err := entries.check(of)
	keepAlive(entries)
	if err != nil {
		return nil, err
	}
	live := &Tree[K, V]{pool: entries.pool, name: entries.name}
	if err := track(entries.members, live, &live.object, uintptr(of.word), C.BR_TREE); err != nil {
		return nil, err
	}
	if err := live.setKinds(); err != nil {
		_ = live.Close()
		return nil, err
	}
	// The calls for words take trees without times.
	live.words = false
	return &ExpiringTree[K, V]{live}, nil
}

// Close closes the handle; the data stays. Again, it does nothing.
func (t *ExpiringTree[K, V]) Close() error {
	if t == nil {
		return errClosed
	}
	return t.live.Close()
}

// Kinds returns the kinds of keys and of values, without their times.
func (t *ExpiringTree[K, V]) Kinds() (keys, values string) { return t.live.Kinds() }

// ExpireAfter returns how long a value lives if its write names no expiry; 0: it does not expire.
func (t *ExpiringTree[K, V]) ExpireAfter() (time.Duration, error) {
	info, err := t.live.info()
	millis := min(uint64(info.expire_after_ms), math.MaxInt64/uint64(time.Millisecond))
	return time.Duration(millis) * time.Millisecond, err
}

// Len counts the entries, including expired ones that were not removed; exact while no goroutine writes.
func (t *ExpiringTree[K, V]) Len() (uint64, error) { return t.live.Len() }

// Get returns the value of a key. If the key is absent, ok is false.
func (t *ExpiringTree[K, V]) Get(key K) (value V, ok bool, err error) { return t.live.Get(key) }

// Contains reports whether a key exists.
func (t *ExpiringTree[K, V]) Contains(key K) (bool, error) { return t.live.Contains(key) }

// Scan returns the range of all keys. Items that expire during an iteration may be returned.
func (t *ExpiringTree[K, V]) Scan() Scan[K, V] { return t.live.Scan() }

// Prefix returns the range of the keys that begin with this one.
func (t *ExpiringTree[K, V]) Prefix(prefix K) Scan[K, V] { return t.live.Prefix(prefix) }

// Remove removes a key, and returns its value. If the key is absent, ok is false.
func (t *ExpiringTree[K, V]) Remove(key K) (old V, ok bool, err error) { return t.live.Remove(key) }

// write makes an operation with an expiry on one key.
func (t *ExpiringTree[K, V]) write(what C.int, key *K, value, expected *V, at Expiry) (status C.int, found V, there bool, err error) {
	if err = t.live.isOpen(); err != nil {
		return 0, found, false, err
	}
	return t.live.writeBytes(what, key, value, expected, &at)
}

// Put writes a key's value and its expiry, whether or not the key exists.
func (t *ExpiringTree[K, V]) Put(key K, value V, at Expiry) error {
	_, _, _, err := t.write(C.BR_PUT, &key, &value, nil, at)
	return err
}

// Exchange writes a key's value and its expiry, and returns the previous value, if there is one.
func (t *ExpiringTree[K, V]) Exchange(key K, value V, at Expiry) (old V, ok bool, err error) {
	_, old, ok, err = t.write(C.BR_EXCHANGE, &key, &value, nil, at)
	return old, ok, err
}

// Insert inserts an absent key. If the key exists, inserted is false, and present is its value.
func (t *ExpiringTree[K, V]) Insert(key K, value V, at Expiry) (present V, inserted bool, err error) {
	status, present, _, err := t.write(C.BR_INSERT, &key, &value, nil, at)
	return present, status == 0 && err == nil, err
}

// Update replaces the value of an existing key and its expiry, and returns the previous value. If the key is absent, ok
// is false.
func (t *ExpiringTree[K, V]) Update(key K, value V, at Expiry) (old V, ok bool, err error) {
	status, old, _, err := t.write(C.BR_UPDATE, &key, &value, nil, at)
	return old, status == 0 && err == nil, err
}

// CompareAndSwap changes a key from expected to wanted with its expiry in one step; nil means an absent key. If the key
// has another value, swapped is false, and found is a pointer to that, or nil.
func (t *ExpiringTree[K, V]) CompareAndSwap(key K, expected, wanted *V, at Expiry) (found *V, swapped bool, err error) {
	status, value, there, err := t.write(C.BR_SWAP, &key, wanted, expected, at)
	if err != nil {
		return nil, false, err
	}
	if status == statusDiffers && there {
		found = &value
	}
	return found, status == 0, nil
}

// Expiry returns when a key expires. If the key is absent, ok is false.
func (t *ExpiringTree[K, V]) Expiry(key K) (at Expiry, ok bool, err error) {
	return t.timed(key, func(tree C.uintptr_t, key unsafe.Pointer, bytes C.size_t) C.br_result {
		return C.br_expiry(tree, key, bytes)
	})
}

// SetExpiry sets when a key expires, and keeps its value: [Never] makes it permanent, and [DefaultExpiry] renews it. It
// returns the previous expiry. If the key is absent, ok is false.
func (t *ExpiringTree[K, V]) SetExpiry(key K, at Expiry) (previous Expiry, ok bool, err error) {
	return t.timed(key, func(tree C.uintptr_t, key unsafe.Pointer, bytes C.size_t) C.br_result {
		return C.br_set_expiry(tree, key, bytes, C.uint64_t(at))
	})
}

func (t *ExpiringTree[K, V]) timed(key K, call func(tree C.uintptr_t, key unsafe.Pointer, bytes C.size_t) C.br_result) (at Expiry, ok bool, err error) {
	if err = t.live.isOpen(); err != nil {
		return 0, false, err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err = t.live.arguments(s, &key, nil); err != nil {
		return 0, false, err
	}
	of := call(t.live.c(), first(s.key), C.size_t(len(s.key)))
	err = t.live.check(of)
	keepAlive(t.live)
	return Expiry(of.word), of.status == 0 && err == nil, err
}

// Removal is the result of [ExpiringTree.RemoveExpired].
type Removal struct {
	// Examined is the number of entries that were read, and Removed that of expired ones that were removed.
	Examined, Removed uint64
	// Complete says whether the end of the tree was reached. The next call begins at the smallest key.
	Complete bool
}

// RemoveExpired reads up to budget entries and removes the expired ones among them; the next call on this handle continues
// behind them. A renewed entry is never removed.
func (t *ExpiringTree[K, V]) RemoveExpired(budget uint64) (pass Removal, err error) {
	var examined C.uint64_t
	err = t.live.call(func(tree C.uintptr_t) C.br_result {
		of := C.br_remove_expired(tree, C.uint64_t(budget), &examined)
		pass = Removal{uint64(examined), uint64(of.word), of.there != 0}
		return of
	})
	if err != nil {
		return Removal{}, err
	}
	return pass, nil
}
