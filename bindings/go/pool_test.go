package bristlecone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// scratchPath returns a path in shared memory, if there is some, that no other process uses.
func scratchPath(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "bristlecone-go-")
	if err != nil {
		folder = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return filepath.Join(folder, "trees.pool")
}

func openScratch(t testing.TB) *Pool {
	t.Helper()
	pool, err := Open(scratchPath(t), Options{Create: true, MaxBytes: 256 << 20})
	ok(t, err)
	t.Cleanup(func() { pool.Close() })
	return pool
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open[K, V any](t testing.TB, pool *Pool, name string) *Tree[K, V] {
	t.Helper()
	tree, err := OpenTree[K, V](pool, name)
	ok(t, err)
	return tree
}

func wants(t testing.TB, err error, status error) {
	t.Helper()
	if !errors.Is(err, status) {
		t.Fatalf("%v instead of %v", err, status)
	}
}

func TestEveryTypeHasItsKind(t *testing.T) {
	type pair struct {
		Name string
		At   Option[[4]byte]
	}
	for kind, of := range map[string]reflect.Type{
		"u64": reflect.TypeFor[uint](), "i64": reflect.TypeFor[int](), "u8": reflect.TypeFor[uint8](),
		"i128": reflect.TypeFor[Int128](), "f32": reflect.TypeFor[float32](), "char": reflect.TypeFor[Char](),
		"i32": reflect.TypeFor[rune](), "(str, Option<[u8; 4]>)": reflect.TypeFor[pair](), "()": reflect.TypeFor[struct{}](),
		"(bool,)": reflect.TypeFor[struct{ Is bool }](), "json": reflect.TypeFor[JSON](), "postcard": reflect.TypeFor[Postcard](),
	} {
		found, err := codecOf(of, 0)
		if err != nil || found.kind != kind {
			t.Errorf("%s: %v, %v", of, found, err)
		}
	}
}

func TestTypesThatCannotBeStoredAreRefused(t *testing.T) {
	pool := openScratch(t)
	type recursive struct{ Next Option[*int] }
	_, err := OpenTree[map[string]int, int](pool, "t")
	wants(t, err, ErrUsage)
	_, err = OpenTree[recursive, int](pool, "t")
	wants(t, err, ErrUsage)
	_, err = OpenTree[struct{ hidden int }, int](pool, "t")
	wants(t, err, ErrUsage)
	_, err = OpenTree[JSON, int](pool, "t")
	wants(t, err, ErrUsage)
	_, err = CreateTree[int, int](pool, "t", TreeOptions{KeyKind: "u8"})
	wants(t, err, ErrUsage)
	_, err = CreateTree[int, int](pool, "t", TreeOptions{Options: map[string]uint64{"no such option": 1}})
	wants(t, err, ErrUsage)
	_, err = OpenTree[any, any](pool, "t")
	wants(t, err, ErrAbsent)
	trees, err := pool.Trees()
	ok(t, err)
	if len(trees) > 0 {
		t.Error(trees)
	}
}

func TestValuesThatCannotBeStoredAreRefused(t *testing.T) {
	pool := openScratch(t)
	texts := open[string, Char](t, pool, "t")
	wants(t, texts.Put("\xff", 'a'), ErrUsage)
	wants(t, texts.Put("a", 0xd800), ErrUsage)
	wants(t, texts.PutMany([]string{"a"}, nil), ErrUsage)
	wants(t, texts.PutMany([]string{"a", "\xff"}, []Char{1, 2}), ErrUsage)
	numbers := open[uint64, uint64](t, pool, "n")
	_, err := numbers.Prefix(1).Collect()
	wants(t, err, ErrUsage)
	of, err := OpenTree[any, any](pool, "n")
	ok(t, err)
	for _, key := range []any{nil, 1, "1", uint32(1), []any{uint64(1)}} {
		wants(t, of.Put(key, uint64(1)), ErrUsage)
	}
	ok(t, of.Put(uint64(7), uint64(8)))
	if value, ok, err := numbers.Get(7); value != 8 || !ok || err != nil {
		t.Error(value, ok, err)
	}
	for _, tree := range []interface{ Len() (uint64, error) }{texts, numbers} {
		if _, err := tree.Len(); err != nil {
			t.Error(err)
		}
	}
	if items, err := texts.Len(); items != 0 || err != nil {
		t.Error(items, err)
	}
}

func TestErrorsMatchThoseOfFs(t *testing.T) {
	path := scratchPath(t)
	_, err := Open(path, Options{})
	wants(t, err, ErrAbsent)
	wants(t, err, fs.ErrNotExist)
	_, err = Open(path+"\x00", Options{})
	wants(t, err, ErrUsage)
	_, err = Open(path, Options{Create: true, Interval: time.Microsecond})
	wants(t, err, ErrUsage)
	_, err = Open(path, Options{Create: true, RecoveryThreads: -1})
	wants(t, err, ErrUsage)
	pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20})
	ok(t, err)
	_, err = Open(path, Options{})
	wants(t, err, ErrInUse)
	ok(t, pool.Close())
	_, err = Open(path, Options{CreateNew: true})
	wants(t, err, ErrUsage)
	ok(t, os.WriteFile(path, []byte("no pool"), 0o600))
	_, err = Open(path, Options{})
	wants(t, err, ErrCorrupted)
	var described *Error
	if !errors.As(err, &described) || described.Message == "" {
		t.Error(err)
	}
}

func TestOpenWaitsUntilTheContextIsDone(t *testing.T) {
	path := scratchPath(t)
	pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20})
	ok(t, err)
	short, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = OpenWait(short, path, Options{})
	wants(t, err, context.DeadlineExceeded)
	wants(t, err, ErrInUse)
	time.AfterFunc(30*time.Millisecond, func() { pool.Close() })
	again, err := OpenWait(t.Context(), path, Options{})
	ok(t, err)
	ok(t, again.Close())
}

func TestClosedHandlesAreRefused(t *testing.T) {
	pool := openScratch(t)
	tree := open[string, uint64](t, pool, "t")
	words := open[uint64, uint64](t, pool, "w")
	ok(t, tree.Put("a", 1))
	snapshot, err := pool.Snapshot(0)
	ok(t, err)
	tx, err := pool.Begin()
	ok(t, err)
	batch, err := pool.Batch()
	ok(t, err)
	scan := tree.Scan().From("a")
	ok(t, tree.Close())
	ok(t, tree.Close())
	calls := func() map[string]error {
		calls := map[string]error{
			"Put": tree.Put("a", 2), "Close of a nil tree": (*Tree[int, int])(nil).Close(), "PutMany": tree.PutMany([]string{"a"}, []uint64{1}),
			"RemoveMany": tree.RemoveMany([]string{"a"}), "To": tree.To(batch).Put("a", 1), "In": tree.In(tx).Remove("a"),
		}
		_, _, calls["Get"] = tree.Get("a")
		_, _, calls["Remove"] = tree.Remove("a")
		_, calls["Contains"] = tree.Contains("a")
		_, calls["Len"] = tree.Len()
		_, calls["Stats"] = tree.Stats()
		_, calls["Check"] = tree.Check()
		_, calls["Collect"] = scan.Collect()
		_, calls["Scan"] = tree.Scan().Before("b").Collect()
		_, _, calls["GetMany"] = tree.GetMany([]string{"a"})
		_, _, calls["At"] = tree.At(snapshot).Get("a")
		return calls
	}
	for name, err := range calls() {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ok(t, pool.Close())
	ok(t, pool.Close())
	more := calls()
	more["words"] = words.Put(1, 1)
	more["Commit of a transaction"], more["Commit of a batch"] = tx.Commit(), batch.Commit()
	more["DropTree"] = pool.DropTree("t")
	_, more["Snapshot"] = pool.Snapshot(0)
	_, more["Bytes"] = snapshot.Bytes()
	_, more["Trees"] = pool.Trees()
	_, more["Info"] = pool.Info()
	_, more["OpenTree"] = OpenTree[int, int](pool, "u")
	more["Sync"] = pool.Sync(t.Context())
	more["Transact"] = pool.Transact(t.Context(), func(*Transaction) error { return nil })
	for name, err := range more {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	tx.Rollback()
	batch.Discard()
	ok(t, snapshot.Close())
}

func TestZeroHandlesAreRefused(t *testing.T) {
	wants(t, (&Pool{}).Close(), ErrClosed)
	wants(t, (&Tree[int, int]{}).Put(1, 1), ErrClosed)
	wants(t, (&Snapshot{}).Close(), ErrClosed)
	wants(t, (&Batch{}).Commit(), ErrClosed)
	_, err := (&Pool{}).Begin()
	wants(t, err, ErrClosed)
	_, err = (&Tree[int, int]{}).Scan().Collect()
	wants(t, err, ErrClosed)
	(&Batch{}).Discard()
	(&Transaction{}).Rollback()
}

func TestTreesOfAnotherPoolAreRefused(t *testing.T) {
	one, other := openScratch(t), openScratch(t)
	tree := open[uint64, uint64](t, one, "t")
	ok(t, tree.Put(1, 1))
	tx, err := other.Begin()
	ok(t, err)
	wants(t, tree.In(tx).Put(1, 2), ErrUsage)
	snapshot, err := other.Snapshot(0)
	ok(t, err)
	_, _, err = tree.At(snapshot).Get(1)
	wants(t, err, ErrUsage)
	batch, err := other.Batch()
	ok(t, err)
	wants(t, tree.To(batch).Put(1, 2), ErrUsage)
}

func TestRangesAreRemoved(t *testing.T) {
	pool := openScratch(t)
	tree := open[string, uint64](t, pool, "t")
	for _, key := range []string{"a", "ab", "abc", "b", "c", "d"} {
		ok(t, tree.Put(key, 1))
	}
	removes := func(of Scan[string, uint64], wanted uint64) {
		t.Helper()
		removed, err := of.Remove()
		ok(t, err)
		if removed != wanted {
			t.Errorf("%d items were removed instead of %d", removed, wanted)
		}
	}
	snapshot, err := pool.Snapshot(0)
	ok(t, err)
	tx, err := pool.Begin()
	ok(t, err)
	for _, refused := range []Scan[string, uint64]{
		tree.Scan().Limit(1), tree.At(snapshot).Scan(), tree.In(tx).Scan(), tree.Prefix("a").Before("b"), tree.Prefix("a").From("ab"),
	} {
		_, err := refused.Remove()
		wants(t, err, ErrUsage)
	}
	tx.Rollback()
	ok(t, snapshot.Close())
	removes(tree.Prefix("ab"), 2)
	removes(tree.Scan().After("a").Through("c").Reverse(), 2)
	removes(tree.Scan().From("x"), 0)
	removes(tree.Scan(), 2)
	words := open[uint64, uint64](t, pool, "words")
	_, err = words.Prefix(1).Remove()
	wants(t, err, ErrUsage)
	ok(t, pool.Close())
	_, err = tree.Scan().Remove()
	wants(t, err, ErrClosed)
}

// A scan ends with an error if its pool is closed meanwhile, and its handle is closed if it is left early.
func TestScansEnd(t *testing.T) {
	pool := openScratch(t)
	tree := open[uint64, uint64](t, pool, "t")
	for key := range uint64(3000) {
		ok(t, tree.Put(key, key))
	}
	for range tree.Scan().All() {
		break
	}
	func() {
		defer func() { _ = recover() }()
		for range tree.Scan().All() {
			panic("in the body of a loop")
		}
	}()
	if open := len(pool.members.open); open != 1 {
		t.Errorf("%d handles are open", open)
	}
	keys := 0
	for range tree.Scan().Reverse().Keys() {
		keys++
	}
	if keys != 3000 {
		t.Error(keys)
	}
	var last error
	seen := 0
	for _, err := range tree.Scan().All() {
		last = err
		if seen++; seen == 10 {
			ok(t, pool.Close())
		}
	}
	wants(t, last, ErrClosed)
}

func TestTransactRepeatsAndRollsBack(t *testing.T) {
	pool := openScratch(t)
	counts := open[string, int](t, pool, "counts")
	ok(t, counts.Put("n", 0))
	attempts := atomic.Int64{}
	var wait sync.WaitGroup
	for range 4 {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for range 50 {
				err := pool.Transact(t.Context(), func(tx *Transaction) error {
					attempts.Add(1)
					n, _, err := counts.In(tx).Get("n")
					if err != nil {
						return err
					}
					runtime.Gosched()
					return counts.In(tx).Put("n", n+1)
				})
				if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wait.Wait()
	if n, _, err := counts.Get("n"); n != 200 || err != nil {
		t.Error(n, err)
	}
	mine := errors.New("mine")
	wants(t, pool.Transact(t.Context(), func(tx *Transaction) error { return errors.Join(counts.In(tx).Put("n", 0), mine) }), mine)
	func() {
		defer func() {
			if recover() != "in a transaction" {
				t.Error("another panic")
			}
		}()
		_ = pool.Transact(t.Context(), func(tx *Transaction) error {
			ok(t, counts.In(tx).Put("n", 0))
			panic("in a transaction")
		})
	}()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	wants(t, pool.Transact(cancelled, func(*Transaction) error { return nil }), context.Canceled)
	wants(t, pool.Sync(cancelled), context.Canceled)
	if n, _, err := counts.Get("n"); n != 200 || err != nil {
		t.Error(n, err)
	}
	if open := len(pool.members.open); open != 1 {
		t.Errorf("%d handles are open", open)
	}
}

// Goroutines use and close the same objects: results or ErrClosed, and nothing else.
func TestGoroutinesCloseWhatOthersUse(t *testing.T) {
	for range 20 {
		pool := openScratch(t)
		tree := open[uint64, uint64](t, pool, "t")
		texts := open[string, []byte](t, pool, "s")
		var wait sync.WaitGroup
		started := make(chan struct{}, 8)
		for worker := range 8 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				for n := uint64(0); ; n++ {
					err := tree.Put(n%100, n)
					if err == nil {
						err = texts.Put("key", []byte{byte(worker)})
					}
					if err == nil {
						_, err = tree.Scan().Limit(5).Collect()
					}
					if n == 20 {
						started <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			}()
		}
		<-started
		ok(t, tree.Close())
		ok(t, pool.Close())
		wait.Wait()
	}
}

func TestASecondGoroutineInATransactionIsRefusedOrWaits(t *testing.T) {
	pool := openScratch(t)
	tree := open[uint64, uint64](t, pool, "t")
	tx, err := pool.Begin()
	ok(t, err)
	var wait sync.WaitGroup
	var written atomic.Uint64
	for worker := range uint64(4) {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := range uint64(200) {
				err := tree.In(tx).Put(worker*1000+n, n)
				if err == nil {
					written.Add(1)
				} else if !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
			}
		}()
	}
	wait.Wait()
	ok(t, tx.Commit())
	if items, err := tree.Len(); items != written.Load() || err != nil {
		t.Error(items, written.Load(), err)
	}
}

// Handles that are unreachable are closed, and handles in use are not.
func TestGarbageCollectionClosesUnreachableHandles(t *testing.T) {
	path := scratchPath(t)
	func() {
		pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20})
		ok(t, err)
		tree := open[uint64, uint64](t, pool, "t")
		_, err = pool.Snapshot(0)
		ok(t, err)
		_, err = pool.Begin()
		ok(t, err)
		for key := range uint64(1000) {
			if key%100 == 0 {
				runtime.GC()
			}
			ok(t, tree.Put(key, key))
		}
	}()
	deadline := time.Now().Add(20 * time.Second)
	for {
		runtime.GC()
		pool, err := Open(path, Options{})
		if err == nil {
			tree := open[uint64, uint64](t, pool, "t")
			if items, err := tree.Len(); items != 1000 || err != nil {
				t.Error(items, err)
			}
			ok(t, pool.Close())
			return
		}
		wants(t, err, ErrInUse)
		if time.Now().After(deadline) {
			t.Fatal("the pool stays open")
		}
		time.Sleep(time.Millisecond)
	}
}

// A handle that is used for the last time is closed after its call.
func TestGarbageCollectionSparesHandlesInUse(t *testing.T) {
	pool := openScratch(t)
	stop := make(chan struct{})
	var wait sync.WaitGroup
	wait.Add(1)
	go func() {
		defer wait.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for key := range uint64(300) {
		ok(t, open[uint64, uint64](t, pool, "t").Put(key, key))
		items, err := open[uint64, uint64](t, pool, "t").Scan().Collect()
		if err != nil || uint64(len(items)) != key+1 {
			t.Fatal(len(items), err)
		}
		snapshot, err := pool.Snapshot(0)
		ok(t, err)
		if _, is, err := open[uint64, uint64](t, pool, "t").At(snapshot).Get(key); !is || err != nil {
			t.Fatal(is, err)
		}
	}
	close(stop)
	wait.Wait()
}

func TestJournalsAreSynced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trees.pool")
	pool, err := Open(path, Options{
		Create: true, MaxBytes: 64 << 20, Domain: DomainJournal, Durability: DurabilityInterval, Interval: 50 * time.Millisecond,
	})
	ok(t, err)
	tree := open[string, string](t, pool, "t")
	ok(t, tree.Put("a", "b"))
	ok(t, pool.Sync(t.Context()))
	status, err := pool.JournalStatus()
	ok(t, err)
	if status.Durability != DurabilityInterval || status.Interval != 50*time.Millisecond || status.DurableLSN == 0 || status.Failed {
		t.Errorf("%+v", status)
	}
	ok(t, pool.Checkpoint(t.Context()))
	ok(t, pool.PruneJournal(t.Context()))
	status, err = pool.JournalStatus()
	if err != nil || !status.HasCheckpoint {
		t.Errorf("%+v %v", status, err)
	}
	ok(t, pool.Close())
	other := openScratch(t)
	_, err = other.JournalStatus()
	wants(t, err, ErrAbsent)
	wants(t, other.Checkpoint(t.Context()), ErrUsage)
}

func TestFollowersReadAndDoNotWrite(t *testing.T) {
	path := scratchPath(t)
	_, err := Open(path, Options{Follow: true})
	if err == nil {
		t.Fatal("there is nothing to follow")
	}
	pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20})
	ok(t, err)
	tree := open[string, uint64](t, pool, "t")
	ok(t, tree.Put("a", 1))
	follower, err := OpenWait(t.Context(), path, Options{Follow: true})
	ok(t, err)
	seen := open[string, uint64](t, follower, "t")
	if value, is, err := seen.Get("a"); value != 1 || !is || err != nil {
		t.Error(value, is, err)
	}
	wants(t, seen.Put("a", 2), ErrReadOnly)
	info, err := follower.Info()
	if err != nil || !info.Following {
		t.Errorf("%+v %v", info, err)
	}
	ok(t, pool.Close())
	_, _, err = seen.Get("a")
	wants(t, err, ErrNoWriter)
	ok(t, follower.Close())
}

// Damage is an error, of lookups, scans and checks, and never an absent key or an early end.
func TestDamageIsAnError(t *testing.T) {
	for _, design := range designs {
		path := scratchPath(t)
		pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20})
		ok(t, err)
		tree, err := CreateTree[uint64, string](pool, "t", TreeOptions{Design: design})
		ok(t, err)
		for key := range uint64(500) {
			ok(t, tree.Put(key, fmt.Sprintf("damage me %04d %050d", key, key)))
		}
		ok(t, pool.Close())
		content, err := os.ReadFile(path)
		ok(t, err)
		for at := 0; ; {
			next := bytes.Index(content[at:], []byte("damage me 0300"))
			if next < 0 {
				break
			}
			at += next + 1
			content[at+20] ^= 1
		}
		ok(t, os.WriteFile(path, content, 0o600))
		pool, err = Open(path, Options{})
		ok(t, err)
		seen := open[uint64, string](t, pool, "t")
		_, _, err = seen.Get(300)
		wants(t, err, ErrCorrupted)
		items, err := seen.Scan().Collect()
		wants(t, err, ErrCorrupted)
		if len(items) > 300 {
			t.Errorf("%s: %d items", design, len(items))
		}
		if value, is, err := seen.Get(301); !is || err != nil || len(value) != 65 {
			t.Error(design, value, is, err)
		}
		if found, err := seen.Check(); len(found) == 0 || err != nil {
			t.Error(design, found, err)
		}
		ok(t, pool.Close())
	}
}

func TestStatsNameTheDesign(t *testing.T) {
	pool := openScratch(t)
	var names []string
	for _, design := range designs {
		tree, err := CreateTree[uint64, uint64](pool, design, TreeOptions{Design: design})
		ok(t, err)
		ok(t, tree.Put(1, 2))
		stats, err := tree.Stats()
		if err != nil || stats.Design != design || stats.Items != 1 || stats.PoolBytes == 0 {
			t.Errorf("%+v %v", stats, err)
		}
		names = append(names, tree.Name())
	}
	if !slices.Equal(names, designs) {
		t.Error(names)
	}
}
