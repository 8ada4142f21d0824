// Package bristlecone stores ordered maps that survive crashes: concurrent B+-trees in shared memory, in persistent
// memory, or in an ordinary file.
//
// A pool is a file with trees. A tree is an ordered map with one type of keys and one of values. A write is durable
// when it returns: after a SIGKILL the next process that opens the pool finds every acknowledged write.
//
//	pool, err := bristlecone.Open("/dev/shm/trees.pool", bristlecone.Options{Create: true})
//	...
//	defer pool.Close()
//	ages, err := bristlecone.OpenTree[string, uint64](pool, "ages")
//	err = ages.Put("Methuselah", 4857)
//	for item, err := range ages.Scan().From("M").Before("N").All() {
//		...
//	}
//
// # Types
//
// The pool keeps the types of keys and values, as kinds. Programs in other languages read the same trees.
//
//	Go                                   kind
//	uint8 ... uint64, uint               "u8" ... "u64", "u64"
//	int8 ... int64, int                  "i8" ... "i64", "i64"
//	Uint128, Int128                      "u128", "i128"
//	float32, float64                     "f32", "f64", as keys in total order: -0 before 0, NaN last
//	bool, Char                           "bool", "char"
//	string, []byte                       "str", "bytes"
//	[N]byte                              "[u8; N]"
//	JSON, Postcard                       "json", "postcard", values only
//	Option[T]                            "Option<T>", None first
//	structs of one to eight of these     "(T, U)", in the order of their fields
//	struct{}                             "()"
//	any                                  the tree's own kinds, see [OpenTree]
//
// Types that are defined as one of these have its kind. Keys have up to 16 KiB, values up to 128 KiB.
//
// # Errors
//
// Every error of the library is an [*Error], and matches a [Status] by [errors.Is]. An absent key is no error. After an
// error an operation has changed nothing, except after [ErrDurabilityLost], where the outcome is unknown.
//
// # Goroutines
//
// Any number of goroutines may use a pool, a tree or a snapshot at the same time, and a handle may move between
// threads. Only one at a time may use a batch, a transaction or a stream of changes; a second one gets [ErrInUse]. Close waits for calls of
// other goroutines; later calls return [ErrClosed]. A handle that the garbage collector frees is closed.
//
// # Processes
//
// One process at a time writes to a pool, and others may follow it: see [Options]. A program that calls fork without
// exec, which Go does not support, gets [ErrForked] in the child.
package bristlecone
