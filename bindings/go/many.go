package bristlecone

/*
#include "shim.h"
*/
import "C"

import (
	"encoding/binary"
	"unsafe"
)

// A packing contains keys or values behind each other.
type packing struct {
	bytes   []byte
	lengths []uint64
}

func pack[T any](of *codec, data []T) (packing, error) {
	packed := packing{lengths: make([]uint64, len(data))}
	for at := range data {
		before := len(packed.bytes)
		bytes, err := encode(of, packed.bytes, &data[at])
		if err != nil {
			return packing{}, &ManyError{0, err}
		}
		packed.bytes, packed.lengths[at] = bytes, uint64(len(bytes)-before)
	}
	return packed, nil
}

func (p packing) c() *C.uint64_t { return (*C.uint64_t)(unsafe.SliceData(p.lengths)) }

// wordsOf returns the same slice as words of C.
func wordsOf[T any](data []T) *C.uint64_t {
	return (*C.uint64_t)(unsafe.Pointer(unsafe.SliceData(data)))
}

// manyError returns the error of a call for many keys.
func manyError(of C.br_result, err error) error {
	if err == nil {
		return nil
	}
	return &ManyError{int(of.word), err}
}

// GetMany looks up keys: values[i] is the value of keys[i] if ok[i] is true. Each lookup reads at its own time.
func (t *Tree[K, V]) GetMany(keys []K) (values []V, ok []bool, err error) {
	if err := t.isOpen(); err != nil {
		return nil, nil, err
	}
	values, ok = make([]V, len(keys)), make([]bool, len(keys))
	if t.isWords() {
		found := make([]uint8, len(keys))
		of := C.br_get_many_words(t.c(), wordsOf(keys), C.size_t(len(keys)), wordsOf(values), (*C.uint8_t)(unsafe.SliceData(found)))
		for at := range found {
			ok[at] = found[at] == 1
		}
		err = t.check(of)
		keepAlive(t)
		return values, ok, err
	}
	packed, err := pack(t.keys, keys)
	if err != nil {
		return nil, nil, err
	}
	of := C.br_get_many(t.c(), first(packed.bytes), packed.c(), C.size_t(len(keys)))
	found := data(of)
	if err = t.check(of); err == nil {
		err = t.unpack(found, values, ok)
	}
	keepAlive(t)
	return values, ok, err
}

func (t *Tree[K, V]) unpack(found []byte, values []V, ok []bool) (err error) {
	for len(found) > 0 {
		at, bytes := binary.NativeEndian.Uint64(found), binary.NativeEndian.Uint64(found[8:])
		if values[at], err = decode[V](t.values, found[16:16+bytes]); err != nil {
			return err
		}
		ok[at], found = true, found[16+bytes:]
	}
	return nil
}

// PutMany writes items one after the other; both slices have the same length. Each write is atomic, and durable. An
// error is a [*ManyError], which says how many items were written.
func (t *Tree[K, V]) PutMany(keys []K, values []V) error {
	if err := t.isOpen(); err != nil {
		return &ManyError{0, err}
	}
	if len(keys) != len(values) {
		return &ManyError{0, usage("the numbers of keys and of values differ")}
	}
	var of C.br_result
	if t.isWords() {
		of = C.br_put_many_words(t.c(), wordsOf(keys), wordsOf(values), C.size_t(len(keys)))
	} else {
		packedKeys, err := pack(t.keys, keys)
		if err != nil {
			return err
		}
		packedValues, err := pack(t.values, values)
		if err != nil {
			return err
		}
		of = C.br_put_many(t.c(), first(packedKeys.bytes), packedKeys.c(), first(packedValues.bytes), packedValues.c(), C.size_t(len(keys)))
	}
	err := manyError(of, t.check(of))
	keepAlive(t)
	return err
}

// RemoveMany removes keys one after the other; absent ones are skipped. Each removal is atomic, and durable. An error is
// a [*ManyError], which says how many keys were processed.
func (t *Tree[K, V]) RemoveMany(keys []K) error {
	if err := t.isOpen(); err != nil {
		return &ManyError{0, err}
	}
	packed, err := pack(t.keys, keys)
	if err != nil {
		return err
	}
	of := C.br_remove_many(t.c(), first(packed.bytes), packed.c(), C.size_t(len(keys)))
	err = manyError(of, t.check(of))
	keepAlive(t)
	return err
}
