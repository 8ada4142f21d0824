package bristlecone

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

// OptionOf is a value of a tree of [any] whose kind is "Option<K>": nil, or a pointer to a K.
type OptionOf = *any

// dynamicExpiring returns the codec of a value that expires: a tuple of its time and the value.
func dynamicExpiring(inner *codec) (*codec, error) {
	of, err := dynamicTuple([]*codec{boxed[uint64](fixed("u64", 8)), inner})
	if err == nil {
		of.kind = "Expiring<" + inner.kind + ">"
	}
	return of, err
}

// dynamicCodec returns the codec of a kind whose data are of type any: numbers, strings and bytes as of the Go type of
// the kind, arrays as []byte, tuples as []any, values that expire as []any of the time
// in milliseconds since 1970, or 0, and the value, options as OptionOf, "()" as struct{}.
func dynamicCodec(kind string) (*codec, error) {
	parser := kinds{rest: kind}
	of, err := parser.take(0)
	if err == nil && parser.rest != "" {
		err = parser.unknown()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %q", err, kind)
	}
	return of, nil
}

type kinds struct{ rest string }

func (k *kinds) unknown() error { return usage("unknown kind") }

func (k *kinds) skip(text string) bool {
	rest, ok := strings.CutPrefix(k.rest, text)
	k.rest = rest
	return ok
}

func (k *kinds) take(depth int) (*codec, error) {
	switch {
	case depth > kindDepth:
		return nil, k.unknown()
	case k.skip("()"):
		return boxed[struct{}](fixed("()", 0)), nil
	case k.skip("[u8; "):
		digits, rest, _ := strings.Cut(k.rest, "]")
		k.rest = rest
		size, err := strconv.Atoi(digits)
		if err != nil || size < 0 {
			return nil, k.unknown()
		}
		return array(size), nil
	case k.skip("Option<"):
		inner, err := k.take(depth + 1)
		if err != nil || !k.skip(">") {
			return nil, k.unknown()
		}
		return dynamicOption(inner), nil
	case k.skip("Expiring<"):
		inner, err := k.take(depth + 1)
		if err != nil || !k.skip(">") {
			return nil, k.unknown()
		}
		return dynamicExpiring(inner)
	case k.skip("("):
		return k.tuple(depth)
	}
	return k.named()
}

func (k *kinds) tuple(depth int) (*codec, error) {
	var elements []*codec
	for {
		element, err := k.take(depth + 1)
		if err != nil {
			return nil, err
		}
		elements = append(elements, element)
		if k.skip(",)") || k.skip(")") {
			return dynamicTuple(elements)
		}
		if !k.skip(", ") {
			return nil, k.unknown()
		}
	}
}

func (k *kinds) named() (*codec, error) {
	end := strings.IndexAny(k.rest, ",)>")
	if end < 0 {
		end = len(k.rest)
	}
	name := k.rest[:end]
	k.rest = k.rest[end:]
	switch name {
	case "u8":
		return boxed[uint8](fixed(name, 1)), nil
	case "u16":
		return boxed[uint16](fixed(name, 2)), nil
	case "u32":
		return boxed[uint32](fixed(name, 4)), nil
	case "u64":
		return boxed[uint64](fixed(name, 8)), nil
	case "u128":
		return boxed[Uint128](wide(name)), nil
	case "i8":
		return boxed[int8](fixed(name, 1)), nil
	case "i16":
		return boxed[int16](fixed(name, 2)), nil
	case "i32":
		return boxed[int32](fixed(name, 4)), nil
	case "i64":
		return boxed[int64](fixed(name, 8)), nil
	case "i128":
		return boxed[Int128](wide(name)), nil
	case "f32":
		return boxed[float32](fixed(name, 4)), nil
	case "f64":
		return boxed[float64](fixed(name, 8)), nil
	case "bool":
		return boxed[bool](boolean()), nil
	case "char":
		return boxed[Char](char()), nil
	case "str":
		return boxed[string](text(name)), nil
	case "bytes":
		return boxed[[]byte](slice(name)), nil
	case "json":
		return boxed[JSON](text(name)), nil
	case "postcard":
		return boxed[Postcard](slice(name)), nil
	}
	return nil, k.unknown()
}

func errKind(value any, kind string) error {
	return usage(fmt.Sprintf("a %s, where the kind is %s", reflect.TypeOf(value), kind))
}

// boxed returns a codec of type any whose data are of type T.
func boxed[T any](of *codec) *codec {
	return &codec{
		kind: of.kind, size: of.size,
		put: func(to []byte, from unsafe.Pointer, packed bool) ([]byte, error) {
			value, ok := (*(*any)(from)).(T)
			if !ok {
				return nil, errKind(*(*any)(from), of.kind)
			}
			return of.put(to, unsafe.Pointer(&value), packed)
		},
		take: func(from []byte, to unsafe.Pointer, packed bool) ([]byte, error) {
			var value T
			rest, err := of.take(from, unsafe.Pointer(&value), packed)
			*(*any)(to) = value
			return rest, err
		},
	}
}

func array(size int) *codec {
	kind := fmt.Sprintf("[u8; %d]", size)
	return &codec{
		kind: kind, size: size,
		put: func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
			value, ok := (*(*any)(from)).([]byte)
			if !ok || len(value) != size {
				return nil, errKind(*(*any)(from), kind)
			}
			return append(to, value...), nil
		},
		take: func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
			if len(from) < size {
				return nil, errUnfit(kind)
			}
			*(*any)(to) = append(make([]byte, 0, size), from[:size]...)
			return from[size:], nil
		},
	}
}

func dynamicOption(inner *codec) *codec {
	kind := "Option<" + inner.kind + ">"
	return &codec{
		kind: kind, size: -1,
		put: func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
			value, ok := (*(*any)(from)).(OptionOf)
			if !ok {
				return nil, errKind(*(*any)(from), kind)
			}
			if value == nil {
				return append(to, 0), nil
			}
			return inner.put(append(to, 1), unsafe.Pointer(value), true)
		},
		take: func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
			if len(from) == 0 || from[0] > 1 {
				return nil, errUnfit(kind)
			}
			if from[0] == 0 {
				*(*any)(to) = OptionOf(nil)
				return from[1:], nil
			}
			value := new(any)
			rest, err := inner.take(from[1:], unsafe.Pointer(value), true)
			*(*any)(to) = value
			return rest, err
		},
	}
}

func dynamicTuple(elements []*codec) (*codec, error) {
	offsets := make([]uintptr, len(elements))
	for at := range offsets {
		offsets[at] = uintptr(at) * unsafe.Sizeof(any(nil))
	}
	inner, err := tuple(elements, offsets)
	if err != nil {
		return nil, err
	}
	return &codec{
		kind: inner.kind, size: inner.size,
		put: func(to []byte, from unsafe.Pointer, _ bool) ([]byte, error) {
			values, ok := (*(*any)(from)).([]any)
			if !ok || len(values) != len(elements) {
				return nil, errKind(*(*any)(from), inner.kind)
			}
			return inner.put(to, unsafe.Pointer(unsafe.SliceData(values)), true)
		},
		take: func(from []byte, to unsafe.Pointer, _ bool) ([]byte, error) {
			values := make([]any, len(elements))
			rest, err := inner.take(from, unsafe.Pointer(unsafe.SliceData(values)), true)
			*(*any)(to) = values
			return rest, err
		},
	}, nil
}
