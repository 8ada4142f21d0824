package bristlecone

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"
)

// Char is a Unicode scalar value, of the kind "char".
type Char rune

// JSON is a text in JSON, of the kind "json". It is kept as it was written.
type JSON string

// Postcard contains bytes of the kind "postcard".
type Postcard []byte

// Uint128 is a number of the kind "u128".
type Uint128 struct{ Hi, Lo uint64 }

// Int128 is a number of the kind "i128", in two's complement.
type Int128 struct {
	Hi int64
	Lo uint64
}

// Option is a value of the kind "Option<T>".
type Option[T any] struct {
	Value T
	// Valid says whether there is a value.
	Valid bool
}

// Some returns an option with a value.
func Some[T any](value T) Option[T] { return Option[T]{value, true} }

func (Option[T]) isOption() {}

// A codec converts the type at a pointer from and to the bytes of the C library. Packed bytes, as within tuples and
// options, begin with a length if their kind has no fixed one.
type codec struct {
	kind string
	// Size of the bytes, or -1.
	size   int
	put    func(to []byte, from unsafe.Pointer, packed bool) ([]byte, error)
	take   func(from []byte, to unsafe.Pointer, packed bool) ([]byte, error)
	isWord bool
}

const (
	elementsMax = 8
	kindDepth   = 48
)

func errUnfit(kind string) error { return &Error{ErrCorrupted, "the stored bytes are no " + kind} }

func fixed(kind string, size int) *codec {
	return &codec{
		kind: kind, size: size, isWord: kind == "u64",
		put: func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
			return append(to, unsafe.Slice((*byte)(from), size)...), nil
		},
		take: func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
			if len(from) < size {
				return nil, errUnfit(kind)
			}
			copy(unsafe.Slice((*byte)(to), size), from)
			return from[size:], nil
		},
	}
}

func putCounted(to []byte, data string, packed bool) []byte {
	if packed {
		to = binary.NativeEndian.AppendUint64(to, uint64(len(data)))
	}
	return append(to, data...)
}

// takeCounted returns the bytes of a string, and those behind it.
func takeCounted(from []byte, packed bool) (data, rest []byte, ok bool) {
	if !packed {
		return from, nil, true
	}
	if len(from) < 8 {
		return nil, nil, false
	}
	count := binary.NativeEndian.Uint64(from)
	if count > uint64(len(from)-8) {
		return nil, nil, false
	}
	return from[8 : 8+count], from[8+count:], true
}

// A text refuses strings that are not UTF-8.
func text(kind string) *codec {
	return &codec{
		kind: kind, size: -1,
		put: func(to []byte, from unsafe.Pointer, packed bool) ([]byte, error) {
			data := *(*string)(from)
			if !utf8.ValidString(data) {
				return nil, usage("a string that is not UTF-8, where it is " + kind)
			}
			return putCounted(to, data, packed), nil
		},
		take: func(from []byte, to unsafe.Pointer, packed bool) ([]byte, error) {
			data, rest, ok := takeCounted(from, packed)
			if !ok {
				return nil, errUnfit(kind)
			}
			*(*string)(to) = string(data)
			return rest, nil
		},
	}
}

func slice(kind string) *codec {
	return &codec{
		kind: kind, size: -1,
		put: func(to []byte, from unsafe.Pointer, packed bool) ([]byte, error) {
			data := *(*[]byte)(from)
			return putCounted(to, unsafe.String(unsafe.SliceData(data), len(data)), packed), nil
		},
		take: func(from []byte, to unsafe.Pointer, packed bool) ([]byte, error) {
			data, rest, ok := takeCounted(from, packed)
			if !ok {
				return nil, errUnfit(kind)
			}
			*(*[]byte)(to) = append(make([]byte, 0, len(data)), data...)
			return rest, nil
		},
	}
}

func boolean() *codec {
	of := fixed("bool", 1)
	take := of.take
	of.take = func(from []byte, to unsafe.Pointer, packed bool) ([]byte, error) {
		if len(from) > 0 && from[0] > 1 {
			return nil, errUnfit("bool")
		}
		return take(from, to, packed)
	}
	return of
}

// wide returns the codec of two halves, of which the low one comes first in memory on little-endian machines.
func wide(kind string) *codec {
	isLittle := binary.NativeEndian.Uint16([]byte{1, 0}) == 1
	first, second := uintptr(0), uintptr(8)
	if isLittle {
		first, second = 8, 0
	}
	half := fixed(kind, 8)
	of := &codec{kind: kind, size: 16}
	of.put = func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
		to, _ = half.put(to, unsafe.Add(from, first), true)
		return half.put(to, unsafe.Add(from, second), true)
	}
	of.take = func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
		rest, err := half.take(from, unsafe.Add(to, first), true)
		if err != nil {
			return nil, err
		}
		return half.take(rest, unsafe.Add(to, second), true)
	}
	return of
}

// sameSize returns the codec of int or uint, if it has the size of the kind.
func sameSize(kind string, size uintptr) (*codec, error) {
	if size != 8 {
		return nil, usage("int and uint have 8 bytes in a pool: use a type with a size on this machine")
	}
	return fixed(kind, 8), nil
}

// codecOf returns the codec of a Go type.
func codecOf(of reflect.Type, depth int) (*codec, error) {
	if depth > kindDepth {
		return nil, usage("the type " + of.String() + " is nested too deeply")
	}
	switch of {
	case reflect.TypeFor[Char]():
		return char(), nil
	case reflect.TypeFor[JSON]():
		return text("json"), nil
	case reflect.TypeFor[Postcard]():
		return slice("postcard"), nil
	case reflect.TypeFor[Uint128]():
		return wide("u128"), nil
	case reflect.TypeFor[Int128]():
		return wide("i128"), nil
	}
	bits := strconv.Itoa(int(of.Size()) * 8)
	switch of.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fixed("u"+bits, int(of.Size())), nil
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return fixed("i"+bits, int(of.Size())), nil
	case reflect.Uint:
		return sameSize("u64", of.Size())
	case reflect.Int:
		return sameSize("i64", of.Size())
	case reflect.Float32, reflect.Float64:
		return fixed("f"+bits, int(of.Size())), nil
	case reflect.Bool:
		return boolean(), nil
	case reflect.String:
		return text("str"), nil
	case reflect.Slice:
		if of.Elem().Kind() == reflect.Uint8 {
			return slice("bytes"), nil
		}
	case reflect.Array:
		if of.Elem().Kind() == reflect.Uint8 {
			return fixed(fmt.Sprintf("[u8; %d]", of.Len()), of.Len()), nil
		}
	case reflect.Struct:
		if of.Implements(reflect.TypeFor[interface{ isExpiring() }]()) {
			return nil, usage("the type " + of.String() + " is one of values only, and not of elements")
		}
		return composed(of, depth)
	}
	return nil, usage("the type " + of.String() + " cannot be a key or a value")
}

func char() *codec {
	of := fixed("char", 4)
	put := of.put
	of.put = func(to []byte, from unsafe.Pointer, packed bool) ([]byte, error) {
		if !utf8.ValidRune(*(*rune)(from)) {
			return nil, usage("a char that is no Unicode scalar value")
		}
		return put(to, from, packed)
	}
	return of
}

func composed(of reflect.Type, depth int) (*codec, error) {
	if of.Implements(reflect.TypeFor[interface{ isOption() }]()) {
		inner, err := codecOf(of.Field(0).Type, depth+1)
		if err != nil {
			return nil, err
		}
		return option(inner, of.Field(1).Offset), nil
	}
	fields := make([]*codec, of.NumField())
	offsets := make([]uintptr, of.NumField())
	for at := range fields {
		field := of.Field(at)
		if !field.IsExported() {
			return nil, usage("the type " + of.String() + " has the field " + field.Name + ", which is not exported")
		}
		element, err := codecOf(field.Type, depth+1)
		if err != nil {
			return nil, err
		}
		fields[at], offsets[at] = element, field.Offset
	}
	return tuple(fields, offsets)
}

func option(inner *codec, valid uintptr) *codec {
	kind := "Option<" + inner.kind + ">"
	return &codec{
		kind: kind, size: -1,
		put: func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
			if !*(*bool)(unsafe.Add(from, valid)) {
				return append(to, 0), nil
			}
			return inner.put(append(to, 1), from, true)
		},
		take: func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
			if len(from) == 0 || from[0] > 1 {
				return nil, errUnfit(kind)
			}
			*(*bool)(unsafe.Add(to, valid)) = from[0] == 1
			if from[0] == 0 {
				return from[1:], nil
			}
			return inner.take(from[1:], to, true)
		},
	}
}

func tuple(fields []*codec, offsets []uintptr) (*codec, error) {
	if len(fields) > elementsMax {
		return nil, usage(fmt.Sprintf("a tuple of %d: up to %d elements are possible", len(fields), elementsMax))
	}
	names, size := make([]string, len(fields)), 0
	for at, field := range fields {
		names[at] = field.kind
		if field.size < 0 || size < 0 {
			size = -1
		} else {
			size += field.size
		}
	}
	kind := "(" + strings.Join(names, ", ") + ")"
	if len(fields) == 1 {
		kind = "(" + names[0] + ",)"
	}
	of := &codec{kind: kind, size: size}
	of.put = func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
		var err error
		for at, field := range fields {
			if to, err = field.put(to, unsafe.Add(from, offsets[at]), true); err != nil {
				return nil, err
			}
		}
		return to, nil
	}
	of.take = func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
		var err error
		for at, field := range fields {
			if from, err = field.take(from, unsafe.Add(to, offsets[at]), true); err != nil {
				return nil, err
			}
		}
		return from, nil
	}
	return of, nil
}

// encode appends a key or a value.
func encode[T any](of *codec, to []byte, value *T) ([]byte, error) {
	return of.put(to, unsafe.Pointer(value), false)
}

// decode reads a key or a value.
func decode[T any](of *codec, from []byte) (value T, err error) {
	rest, err := of.take(from, unsafe.Pointer(&value), false)
	if err == nil && len(rest) > 0 {
		err = errUnfit(of.kind)
	}
	return value, err
}
