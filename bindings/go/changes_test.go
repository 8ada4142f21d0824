package bristlecone

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

func openJournal(t testing.TB, path string) *Pool {
	t.Helper()
	pool, err := Open(path, Options{Create: true, MaxBytes: 64 << 20, Domain: DomainJournal, CursorLimit: 1 << 20})
	ok(t, err)
	t.Cleanup(func() { pool.Close() })
	return pool
}

func collectCommits(t testing.TB, stream *Changes) (commits []*Commit) {
	t.Helper()
	for commit, err := range stream.All() {
		ok(t, err)
		commits = append(commits, commit)
	}
	return commits
}

func openChanges(t testing.TB, pool *Pool, from uint64) *Changes {
	t.Helper()
	stream, err := pool.Changes(from)
	ok(t, err)
	return stream
}

func TestStreamsReturnWholeCommitsInOrder(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	type age struct {
		Years uint64
		Name  string
	}
	ages := open[string, age](t, pool, "ages")
	ok(t, ages.Put("Methuselah", age{4857, "pine"}))
	batch, err := pool.Batch()
	ok(t, err)
	ok(t, ages.To(batch).Put("Pando", age{14000, "aspen"}))
	ok(t, ages.To(batch).Remove("Methuselah"))
	ok(t, batch.Commit())
	ok(t, ages.Close())
	ok(t, pool.RenameTree("ages", "years"))
	ok(t, pool.ClearTree("years"))
	commits := collectCommits(t, openChanges(t, pool, 0))
	if len(commits) != 5 {
		t.Fatalf("%d commits", len(commits))
	}
	for at, commit := range commits {
		if at > 0 && commits[at-1].NextLSN > commit.LSN || time.Since(commit.Time).Abs() > 5*time.Minute {
			t.Errorf("%+v", commit)
		}
	}
	id := commits[0].Changes[0].TreeID
	put := Change{ChangePut, "ages", id, id, "str", "(u64, str)", "Pando", []any{uint64(14000), "aspen"}, Some(false), ""}
	remove := Change{ChangeRemove, "ages", id, id, "str", "(u64, str)", "Methuselah", nil, Some(true), ""}
	if !reflect.DeepEqual(commits[2].Changes, []Change{remove, put}) {
		t.Errorf("%+v", commits[2].Changes)
	}
	if renamed := commits[3].Changes[0]; renamed.What != ChangeRename || renamed.RenamedTo != "years" {
		t.Errorf("%+v", renamed)
	}
	if cleared := commits[4].Changes[0]; cleared.What != ChangeClear || cleared.NewTreeID == id {
		t.Errorf("%+v", cleared)
	}
	// A stream continues where another one ended.
	if again := collectCommits(t, openChanges(t, pool, commits[1].NextLSN)); !reflect.DeepEqual(again, commits[2:]) {
		t.Errorf("%+v", again)
	}
	_, err = pool.Changes(1 << 40)
	wants(t, err, ErrUsage)
}

func TestValuesThatExpireHaveTheirTimes(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	for _, kind := range []string{"u64", "str", "json"} {
		tree, err := CreateTree[any, any](pool, kind, TreeOptions{KeyKind: "str", ValueKind: "Expiring<" + kind + ">"})
		ok(t, err)
		value := map[string]any{"u64": uint64(7), "str": "seven", "json": JSON("[7]")}[kind]
		entry := []any{uint64(1900000000000), value}
		ok(t, tree.Put("a", entry))
		found, there, err := tree.Get("a")
		ok(t, err)
		items, failed := tree.Scan().Collect()
		ok(t, failed)
		if !there || !reflect.DeepEqual(found, any(entry)) || len(items) != 1 || !reflect.DeepEqual(items[0].Value, any(entry)) {
			t.Errorf("%s: %v, %v", kind, found, items)
		}
		wants(t, tree.Put("a", value), ErrUsage)
		commits := collectCommits(t, openChanges(t, pool, 0))
		last := commits[len(commits)-1].Changes[0]
		if last.ValueKind != "Expiring<"+kind+">" || !reflect.DeepEqual(last.Value, any(entry)) {
			t.Errorf("%+v", last)
		}
	}
	_, err := CreateTree[any, any](pool, "x", TreeOptions{KeyKind: "Expiring<u64>", ValueKind: "u64"})
	wants(t, err, ErrUsage)
}

func TestALongCommitIsWhole(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	tree := open[uint64, []byte](t, pool, "t")
	batch, err := pool.Batch()
	ok(t, err)
	const count = 30000
	for key := range uint64(count) {
		ok(t, tree.To(batch).Put(key, []byte("abcdefghijklmnop")))
	}
	ok(t, batch.Commit())
	commits := collectCommits(t, openChanges(t, pool, 0))
	if len(commits) != 2 || len(commits[1].Changes) != count || commits[1].Changes[count-1].Key != uint64(count-1) {
		t.Fatalf("%d commits", len(commits))
	}
}

func TestFollowersWaitUntilTheContextIsDone(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	tree := open[uint64, uint64](t, pool, "t")
	stream := openChanges(t, pool, 0)
	collectCommits(t, stream)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	_, err := stream.Next(ctx)
	wants(t, err, context.DeadlineExceeded)
	followed, end := context.WithCancel(context.Background())
	go func() {
		for key := range uint64(100) {
			if tree.Put(key, key) != nil {
				break
			}
		}
	}()
	var keys []any
	for commit, err := range stream.Follow(followed) {
		if err != nil {
			wants(t, err, context.Canceled)
			break
		}
		for _, change := range commit.Changes {
			keys = append(keys, change.Key)
		}
		if len(keys) == 100 {
			end()
		}
	}
	if len(keys) != 100 || keys[99] != uint64(99) {
		t.Error(keys)
	}
	end()
	// The stream is intact.
	ok(t, tree.Put(7, 7))
	commit, err := stream.Next(context.Background())
	ok(t, err)
	if commit.Changes[0].Key != uint64(7) {
		t.Errorf("%+v", commit)
	}
	ended, stop := context.WithCancel(context.Background())
	stop()
	_, err = stream.Next(ended)
	wants(t, err, context.Canceled)
}

func TestCursorsKeepWhatWasNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trees.pool")
	pool := openJournal(t, path)
	tree := open[uint64, []byte](t, pool, "t")
	begun, err := pool.CreateCursor("audit", DurableEnd)
	ok(t, err)
	for _, name := range []string{"audit", "a/b", "", "a\x00b"} {
		_, err = pool.CreateCursor(name, 0)
		wants(t, err, ErrUsage)
	}
	for key := range uint64(10) {
		ok(t, tree.Put(key, []byte("x")))
	}
	ok(t, pool.Checkpoint(context.Background()))
	stream, err := pool.ChangesOf("audit")
	ok(t, err)
	_, err = pool.ChangesOf("audit")
	wants(t, err, ErrInUse)
	var last *Commit
	for range 5 {
		last, err = stream.TryNext()
		ok(t, err)
	}
	ok(t, stream.Advance(last.NextLSN))
	wants(t, stream.Advance(begun), ErrUsage)
	wants(t, openChanges(t, pool, last.NextLSN).Advance(last.NextLSN), ErrUsage)
	ok(t, pool.Close())

	pool = openJournal(t, path)
	tree = open[uint64, []byte](t, pool, "t")
	if stream, err = pool.ChangesOf("audit"); err != nil {
		t.Fatal(err)
	}
	if commits := collectCommits(t, stream); len(commits) != 5 || commits[0].Changes[0].Key != uint64(5) {
		t.Errorf("%d commits", len(commits))
	}
	cursors, err := pool.Cursors()
	ok(t, err)
	if len(cursors) != 1 || cursors[0].Name != "audit" || cursors[0].LSN != last.NextLSN || cursors[0].Dropped {
		t.Errorf("%+v", cursors)
	}
	isLost(t, pool, tree, stream)
}

// isLost checks that a consumer that does not advance loses its cursor.
func isLost(t *testing.T, pool *Pool, tree *Tree[uint64, []byte], stream *Changes) {
	for key := range uint64(600) {
		ok(t, tree.Put(key%8, make([]byte, 100_000)))
	}
	ok(t, pool.Checkpoint(context.Background()))
	ok(t, pool.Checkpoint(context.Background()))
	var err error
	for _, err = range stream.Follow(context.Background()) {
	}
	var pruned *PrunedError
	if !errors.As(err, &pruned) || pruned.OldestLSN == 0 {
		t.Fatal(err)
	}
	// All later calls return the error.
	_, err = stream.TryNext()
	wants(t, err, ErrPruned)
	_, err = pool.ChangesOf("audit")
	wants(t, err, ErrPruned)
	ok(t, pool.DropCursor("audit"))
	wants(t, pool.DropCursor("audit"), ErrAbsent)
	_, err = pool.ChangesOf("audit")
	wants(t, err, ErrAbsent)
	_, err = pool.Changes(0)
	if status, failed := pool.JournalStatus(); failed != nil || !errors.As(err, &pruned) || pruned.OldestLSN != status.OldestLSN {
		t.Fatal(err, failed)
	}
	openChanges(t, pool, pruned.OldestLSN)
}

func TestClosingEndsAFollower(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trees.pool")
	for round := range 6 {
		pool := openJournal(t, path)
		stream := openChanges(t, pool, 0)
		begun, ended := make(chan struct{}), make(chan error)
		go func() {
			var last error
			for _, err := range stream.All() {
				last = err
			}
			close(begun)
			for _, err := range stream.Follow(context.Background()) {
				last = err
			}
			ended <- last
		}()
		<-begun
		time.Sleep(time.Duration(round) * 5 * time.Millisecond)
		if round%2 == 0 {
			ok(t, stream.Close())
		}
		ok(t, pool.Close())
		wants(t, <-ended, ErrClosed)
		for _, call := range []func() error{
			func() error { _, err := stream.TryNext(); return err }, func() error { return stream.Advance(0) },
			func() error { _, err := stream.Next(context.Background()); return err },
			func() error { _, err := pool.Changes(0); return err }, func() error { _, err := pool.Cursors(); return err },
			func() error { _, err := pool.CreateCursor("c", 0); return err },
		} {
			wants(t, call(), ErrClosed)
		}
		ok(t, stream.Close())
	}
	var none *Changes
	_, err := none.TryNext()
	wants(t, err, ErrClosed)
	wants(t, new(Changes).Close(), ErrClosed)
	_, err = new(Changes).Next(context.Background())
	wants(t, err, ErrClosed)
}

func TestASecondGoroutineInAStreamIsRefused(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	tree := open[uint64, uint64](t, pool, "t")
	stream := openChanges(t, pool, 0)
	const writes, readers = 200, 4
	var all sync.WaitGroup
	var mutex sync.Mutex
	var found []uint64
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range readers {
		all.Add(1)
		go func() {
			defer all.Done()
			for ctx.Err() == nil {
				commit, err := stream.Next(ctx)
				if errors.Is(err, ErrInUse) || errors.Is(err, context.Canceled) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mutex.Lock()
				if found = append(found, commit.LSN); len(found) == writes+1 {
					cancel()
				}
				mutex.Unlock()
			}
		}()
	}
	for key := range uint64(writes) {
		ok(t, tree.Put(key, key))
		if key%50 == 0 {
			runtime.GC()
		}
	}
	all.Wait()
	slices.Sort(found)
	if len(slices.Compact(found)) != writes+1 {
		t.Error("commits were lost or returned twice")
	}
}

func TestPoolsWithoutAJournalHaveNoStream(t *testing.T) {
	pool := openScratch(t)
	_, err := pool.Changes(0)
	wants(t, err, ErrUsage)
	_, err = pool.CreateCursor("c", 0)
	wants(t, err, ErrUsage)
	_, err = pool.ChangesOf("c")
	wants(t, err, ErrUsage)
	_, err = pool.Cursors()
	wants(t, err, ErrAbsent)
}

func TestUnreachableStreamsAreClosed(t *testing.T) {
	pool := openJournal(t, filepath.Join(t.TempDir(), "trees.pool"))
	_, err := pool.CreateCursor("audit", 0)
	ok(t, err)
	func() {
		_, err := pool.ChangesOf("audit")
		ok(t, err)
	}()
	for attempt := 0; ; attempt++ {
		runtime.GC()
		stream, err := pool.ChangesOf("audit")
		if err == nil {
			ok(t, stream.Close())
			return
		}
		wants(t, err, ErrInUse)
		if attempt > 1000 {
			t.Fatal("the stream stays open")
		}
		time.Sleep(time.Millisecond)
	}
}
