package bristlecone

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"reflect"
	"sync"
	"time"
	"unsafe"
)

// TreeOptions say how a tree is created. The zero value creates one of the default design.
type TreeOptions struct {
	// Design is "nbtree", which is the default, "sstree", "cclbtree", "lodgetree" or "wotree".
	Design string
	// Options of the design, by name: see docs/designs.
	Options map[string]uint64
	// KeyKind and ValueKind are the kinds of a tree of [any]; for other types they are empty.
	KeyKind, ValueKind string
	// ExpireAfter is how long a value of the type [Expiring] lives if its write names no expiry, in whole milliseconds;
	// 0: it does not expire.
	ExpireAfter time.Duration
}

// Tree is an ordered map from K to V in a pool, for any number of goroutines. Every write of one key is atomic, and
// durable when it returns.
type Tree[K, V any] struct {
	object
	pool   *Pool
	name   string
	keys   *codec
	values *codec
	words  bool
}

// codecFor returns the codec of a type: of any, that of the kind.
func codecFor[T any](kind string) (*codec, error) {
	of := reflect.TypeFor[T]()
	if of == reflect.TypeFor[any]() {
		return dynamicCodec(kind)
	}
	if expiring, err := expiringCodec(of); expiring != nil || err != nil {
		return expiring, err
	}
	return codecOf(of, 0)
}

// OpenTree opens the tree of this name, or creates it with the default design. It returns [ErrUsage] if the tree has
// other kinds.
//
// A tree of [any] must exist. Its keys and values have the Go types of its kinds, with arrays as []byte, tuples as
// []any, and options as [OptionOf].
func OpenTree[K, V any](pool *Pool, name string) (*Tree[K, V], error) {
	isAny := reflect.TypeFor[K]() == reflect.TypeFor[any]() || reflect.TypeFor[V]() == reflect.TypeFor[any]()
	if isAny {
		return opened[K, V](pool, name, func(pool C.uintptr_t, name *C.char, _, _ *C.char) C.br_result {
			return C.br_tree_open(pool, name, nil, nil)
		}, "", "")
	}
	return typed[K, V](pool, name, TreeOptions{}, func(pool C.uintptr_t, name, keys, values *C.char) C.br_result {
		return C.br_tree_open(pool, name, keys, values)
	})
}

// CreateTree creates a tree, and fails with [ErrUsage] if one of this name exists.
func CreateTree[K, V any](pool *Pool, name string, options TreeOptions) (*Tree[K, V], error) {
	var tree *Tree[K, V]
	expireAfter, err := wholeMillis(options.ExpireAfter)
	if err != nil {
		return nil, err
	}
	err = withDesign(options, func(design *C.char, given *C.bristlecone_option, count C.size_t) (err error) {
		tree, err = typed[K, V](pool, name, options, func(pool C.uintptr_t, name, keys, values *C.char) C.br_result {
			return C.br_tree_create(pool, name, keys, values, design, given, count, C.uint64_t(expireAfter))
		})
		return err
	})
	return tree, err
}

// withDesign passes a design and its options, in memory of C.
func withDesign(options TreeOptions, use func(design *C.char, given *C.bristlecone_option, count C.size_t) error) error {
	names, numbers := []string{options.Design}, make([]uint64, 0, len(options.Options))
	for name, number := range options.Options {
		names, numbers = append(names, name), append(numbers, number)
	}
	return withNames(func(names []*C.char) error {
		size := C.size_t(unsafe.Sizeof(C.bristlecone_option{}))
		given := (*C.bristlecone_option)(C.calloc(C.size_t(len(numbers)+1), size))
		defer C.free(unsafe.Pointer(given))
		for at, option := range unsafe.Slice(given, len(numbers)) {
			option.name, option.value = names[at+1], C.uint64_t(numbers[at])
			unsafe.Slice(given, len(numbers))[at] = option
		}
		design := names[0]
		if options.Design == "" {
			design = nil
		}
		return use(design, given, C.size_t(len(numbers)))
	}, names...)
}

type opener = func(pool C.uintptr_t, name, keys, values *C.char) C.br_result

// typed opens or creates a tree of these types.
func typed[K, V any](pool *Pool, name string, options TreeOptions, open opener) (*Tree[K, V], error) {
	keyKind, err := kindOf[K](options.KeyKind)
	if err != nil {
		return nil, err
	}
	valueKind, err := kindOf[V](options.ValueKind)
	if err != nil {
		return nil, err
	}
	return opened[K, V](pool, name, open, keyKind, valueKind)
}

// kindOf returns the kind of a type. That of any is given.
func kindOf[T any](given string) (string, error) {
	if reflect.TypeFor[T]() == reflect.TypeFor[any]() {
		return given, nil
	}
	of, err := codecFor[T](given)
	if err != nil {
		return "", err
	}
	if given != "" && given != of.kind {
		return "", usage("the kind " + given + " of the type " + reflect.TypeFor[T]().String() + ", which is " + of.kind)
	}
	return of.kind, nil
}

func opened[K, V any](pool *Pool, name string, open opener, keyKind, valueKind string) (*Tree[K, V], error) {
	tree := &Tree[K, V]{pool: pool, name: name}
	err := withNames(func(names []*C.char) error {
		of, err := pool.call(func(pool C.uintptr_t) C.br_result { return open(pool, names[0], names[1], names[2]) })
		if err != nil {
			return err
		}
		return track(pool.members, tree, &tree.object, uintptr(of.word), C.BR_TREE)
	}, name, keyKind, valueKind)
	if err != nil {
		return nil, err
	}
	if err := tree.setKinds(); err != nil {
		_ = tree.Close()
		return nil, err
	}
	return tree, nil
}

// setKinds sets the codecs by the kinds of the open tree.
func (t *Tree[K, V]) setKinds() error {
	info, err := t.info()
	if err != nil {
		return err
	}
	if t.keys, err = codecFor[K](C.GoString(&info.key_kind[0])); err != nil {
		return err
	}
	if t.values, err = codecFor[V](C.GoString(&info.value_kind[0])); err != nil {
		return err
	}
	if kinds := [2]string{C.GoString(&info.key_kind[0]), C.GoString(&info.value_kind[0])}; kinds != [2]string{t.keys.kind, t.values.kind} {
		return usage("the tree has " + kinds[0] + " keys and " + kinds[1] + " values, not " + t.keys.kind + " and " + t.values.kind)
	}
	t.words = t.keys.isWord && t.values.isWord
	return nil
}

func (t *Tree[K, V]) info() (info C.bristlecone_tree_info, err error) {
	err = t.call(func(tree C.uintptr_t) C.br_result { return C.br_tree_info(tree, &info) })
	return info, err
}

// call makes a call on the tree's handle that is not an operation on a key.
func (t *Tree[K, V]) call(use func(tree C.uintptr_t) C.br_result) error {
	if err := t.isOpen(); err != nil {
		return err
	}
	err := t.check(use(t.c()))
	keepAlive(t)
	return err
}

// Close closes the handle; the data stays. Again, it does nothing.
func (t *Tree[K, V]) Close() error {
	if t == nil || t.members == nil {
		return errClosed
	}
	return t.close()
}

// Name returns the name by which the tree was opened.
func (t *Tree[K, V]) Name() string { return t.name }

// Kinds returns the kinds of keys and of values.
func (t *Tree[K, V]) Kinds() (keys, values string) { return t.keys.kind, t.values.kind }

// Stats describes the size of a tree.
type Stats struct {
	// Design of the tree.
	Design string
	// Items is the number of items, and Leaves that of leaves; exact while no goroutine writes.
	Items, Leaves uint64
	// PoolBytes are the bytes of the pool, in whole chunks, and MemoryBytes those of DRAM.
	PoolBytes, MemoryBytes uint64
}

// Stats returns the size of the tree.
func (t *Tree[K, V]) Stats() (Stats, error) {
	known, err := t.info()
	return Stats{C.GoString(&known.design[0]), uint64(known.items), uint64(known.leaves), uint64(known.pm_bytes), uint64(known.dram_bytes)}, err
}

// Len counts the items; exact while no goroutine writes.
func (t *Tree[K, V]) Len() (items uint64, err error) {
	err = t.call(func(tree C.uintptr_t) C.br_result {
		of := C.br_len(tree)
		items = uint64(of.word)
		return of
	})
	return items, err
}

// Check verifies everything that is reachable from the tree, and returns the damage: normally none. Exact while no
// goroutine writes.
func (t *Tree[K, V]) Check() (found []Issue, err error) {
	var of C.br_result
	err = t.call(func(tree C.uintptr_t) C.br_result {
		of = C.br_check(C.BR_TREE, tree)
		return of
	})
	return issues(of, err)
}

// scratch holds the bytes of arguments and results during a call.
type scratch struct{ key, value, expected, result []byte }

var scratches = sync.Pool{New: func() any { return &scratch{result: make([]byte, 256)} }}

// arguments converts a key, and a value unless it is nil.
func (t *Tree[K, V]) arguments(of *scratch, key *K, value *V) (err error) {
	if of.key, err = encode(t.keys, of.key[:0], key); err == nil && value != nil {
		of.value, err = encode(t.values, of.value[:0], value)
	}
	return err
}

// word returns a key or a value of the kind "u64".
func word[T any](of *T) C.uint64_t { return *(*C.uint64_t)(unsafe.Pointer(of)) }

func ofWord[T any](word C.uint64_t) (value T) {
	*(*C.uint64_t)(unsafe.Pointer(&value)) = word
	return value
}

// Get returns the value of a key. If the key is absent, ok is false.
func (t *Tree[K, V]) Get(key K) (value V, ok bool, err error) {
	value, ok, err = t.get(C.BR_TREE, &t.object, key)
	keepAlive(t)
	return value, ok, err
}

// get looks a key up in the tree, in a snapshot or in a transaction.
func (t *Tree[K, V]) get(kind C.int, of *object, key K) (value V, ok bool, err error) {
	if err = t.isOpen(); err != nil {
		return value, false, err
	}
	if t.isWords() {
		got := C.br_word_get(kind, of.c(), t.c(), word(&key))
		return ofWord[V](got.word), got.status == 0, t.checkBoth(of, got)
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err = t.arguments(s, &key, nil); err != nil {
		return value, false, err
	}
	for {
		got := C.br_get(kind, of.c(), t.c(), first(s.key), C.size_t(len(s.key)), first(s.result), C.size_t(len(s.result)))
		switch got.status {
		case 0:
			value, err = decode[V](t.values, s.result[:got.bytes])
			return value, err == nil, err
		case statusTooSmall:
			s.result = make([]byte, got.bytes)
		default:
			return value, false, t.checkBoth(of, got)
		}
	}
}

// isWords reports whether the calls for words fit the types.
func (t *Tree[K, V]) isWords() bool { return t.words && !isAny[K]() && !isAny[V]() }

func isAny[T any]() bool {
	var none T
	_, ok := any(&none).(*any)
	return ok
}

// checkBoth returns the error of a call on the tree and another object.
func (t *Tree[K, V]) checkBoth(other *object, of C.br_result) error {
	if of.message == nil {
		return nil
	}
	err := t.check(of)
	if statusOf(err) == ErrUsage && (other.closed.Load() || !other.members.has(other.handle)) {
		return errClosed
	}
	return err
}

// Contains reports whether a key exists.
func (t *Tree[K, V]) Contains(key K) (bool, error) {
	if err := t.isOpen(); err != nil {
		return false, err
	}
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err := t.arguments(s, &key, nil); err != nil {
		return false, err
	}
	of := C.br_contains(t.c(), first(s.key), C.size_t(len(s.key)))
	err := t.check(of)
	keepAlive(t)
	return of.status == 0, err
}

// write makes an operation on one key; there says whether found is a value.
func (t *Tree[K, V]) write(what C.int, key *K, value, expected *V) (status C.int, found V, there bool, err error) {
	if err = t.isOpen(); err != nil {
		return 0, found, false, err
	}
	if t.isWords() && what != C.BR_EXCHANGE {
		var value2, expected2 C.uint64_t
		if value != nil {
			value2 = word(value)
		}
		if expected != nil {
			expected2 = word(expected)
		}
		of := C.br_word_write(what, t.c(), word(key), value2, truth(expected != nil), expected2, truth(value != nil))
		err = t.check(of)
		keepAlive(t)
		return of.status, ofWord[V](of.word), of.there != 0, err
	}
	return t.writeBytes(what, key, value, expected, nil)
}

func truth(of bool) C.int {
	if of {
		return 1
	}
	return 0
}

// writeBytes makes an operation on one key by bytes; at is the expiry, for handles that show only live values.
func (t *Tree[K, V]) writeBytes(what C.int, key *K, value, expected *V, at *Expiry) (status C.int, found V, there bool, err error) {
	s := scratches.Get().(*scratch)
	defer scratches.Put(s)
	if err = t.arguments(s, key, value); err != nil {
		return 0, found, false, err
	}
	valuePointer, expectedPointer := unsafe.Pointer(nil), unsafe.Pointer(nil)
	valueBytes, expectedBytes := C.size_t(0), C.size_t(0)
	if value != nil {
		valuePointer, valueBytes = first(s.value), C.size_t(len(s.value))
	}
	if expected != nil {
		if s.expected, err = encode(t.values, s.expected[:0], expected); err != nil {
			return 0, found, false, err
		}
		expectedPointer, expectedBytes = first(s.expected), C.size_t(len(s.expected))
	}
	var of C.br_result
	if at == nil {
		of = C.br_write(what, t.c(), first(s.key), C.size_t(len(s.key)), valuePointer, valueBytes, expectedPointer, expectedBytes)
	} else {
		of = C.br_expiring_write(what, t.c(), first(s.key), C.size_t(len(s.key)), valuePointer, valueBytes, expectedPointer, expectedBytes, C.uint64_t(*at))
	}
	old := data(of)
	err = t.check(of)
	keepAlive(t)
	if err == nil && of.there != 0 {
		found, err = decode[V](t.values, old)
	}
	return of.status, found, of.there != 0, err
}

// Put writes a key's value, whether or not the key exists.
func (t *Tree[K, V]) Put(key K, value V) error {
	_, _, _, err := t.write(C.BR_PUT, &key, &value, nil)
	return err
}

// Exchange writes a key's value, and returns the previous one, if there is one.
func (t *Tree[K, V]) Exchange(key K, value V) (old V, ok bool, err error) {
	_, old, ok, err = t.write(C.BR_EXCHANGE, &key, &value, nil)
	return old, ok, err
}

// Insert inserts an absent key. If the key exists, inserted is false, and present is its value.
func (t *Tree[K, V]) Insert(key K, value V) (present V, inserted bool, err error) {
	status, present, _, err := t.write(C.BR_INSERT, &key, &value, nil)
	return present, status == 0 && err == nil, err
}

// Update replaces the value of an existing key, and returns the previous one. If the key is absent, ok is false.
func (t *Tree[K, V]) Update(key K, value V) (old V, ok bool, err error) {
	status, old, _, err := t.write(C.BR_UPDATE, &key, &value, nil)
	return old, status == 0 && err == nil, err
}

// Remove removes a key, and returns its value. If the key is absent, ok is false.
func (t *Tree[K, V]) Remove(key K) (old V, ok bool, err error) {
	status, old, _, err := t.write(C.BR_REMOVE, &key, nil, nil)
	return old, status == 0 && err == nil, err
}

// CompareAndSwap changes a key from expected to wanted in one step; nil means an absent key. If the key has another
// value, swapped is false, and found is a pointer to that, or nil.
func (t *Tree[K, V]) CompareAndSwap(key K, expected, wanted *V) (found *V, swapped bool, err error) {
	status, value, there, err := t.write(C.BR_SWAP, &key, wanted, expected)
	if err != nil {
		return nil, false, err
	}
	if status == statusDiffers && there {
		found = &value
	}
	return found, status == 0, nil
}
