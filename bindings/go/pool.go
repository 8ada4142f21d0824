package bristlecone

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// Domain says where data must be to be durable.
type Domain uint32

// The domains. DomainDetected is that of the medium.
const (
	DomainDetected Domain = C.BRISTLECONE_DOMAIN_DETECTED
	DomainProcess  Domain = C.BRISTLECONE_DOMAIN_PROCESS
	DomainADR      Domain = C.BRISTLECONE_DOMAIN_ADR
	DomainEADR     Domain = C.BRISTLECONE_DOMAIN_EADR
	DomainMsync    Domain = C.BRISTLECONE_DOMAIN_MSYNC
	DomainJournal  Domain = C.BRISTLECONE_DOMAIN_JOURNAL
)

// Durability says when a write to a pool with a journal returns.
type Durability uint32

// The durabilities. In all of them a killed process loses nothing.
const (
	// DurabilityDefault is DurabilityCommit.
	DurabilityDefault Durability = C.BRISTLECONE_DURABILITY_DEFAULT
	// DurabilityCommit returns once the write is on disk.
	DurabilityCommit Durability = C.BRISTLECONE_DURABILITY_COMMIT
	// DurabilityInterval returns immediately; the write is on disk after Options.Interval and one sync.
	DurabilityInterval Durability = C.BRISTLECONE_DURABILITY_INTERVAL
	// DurabilityMemory returns immediately; the write is on disk after Sync or Close.
	DurabilityMemory Durability = C.BRISTLECONE_DURABILITY_MEMORY
)

// Options say how a pool is opened. The zero value opens an existing pool for writing.
type Options struct {
	// Create creates the pool if it does not exist.
	Create bool
	// CreateNew creates the pool, and fails if it exists.
	CreateNew bool
	// ReadOnly opens the pool for reading, beside other readers.
	ReadOnly bool
	// Follow reads the pool while another process writes to it.
	Follow bool
	// MaxBytes is the maximum size in bytes; 0 is the default. It raises a lower maximum of an existing pool.
	MaxBytes uint64
	// Domain is the domain; DomainDetected is the default.
	Domain Domain
	// RecoveryThreads is the number of threads that recover a tree; 0 is one per processor.
	RecoveryThreads int
	// Durability says when a write returns, in a pool with a journal.
	Durability Durability
	// Interval is the time of DurabilityInterval, in whole milliseconds.
	Interval time.Duration
	// Journal is the folder of the journal; empty is the path of the pool, followed by ".journal".
	Journal string
	// CursorLimit is the maximum size in bytes of the files of the journal that are kept only for a cursor, before a
	// checkpoint drops it; 0 is 1 GiB.
	CursorLimit uint64
	// InstallSIGBUS lets the library report a truncated pool before it aborts. The default leaves SIGBUS to the runtime of
	// Go, which ends the process with a trace.
	InstallSIGBUS bool
}

func (o Options) flags() C.uint32_t {
	var flags C.uint32_t
	for _, flag := range []struct {
		set  bool
		flag C.uint32_t
	}{
		{o.Create, C.BRISTLECONE_CREATE}, {o.CreateNew, C.BRISTLECONE_CREATE_NEW}, {o.ReadOnly, C.BRISTLECONE_READ},
		{o.Follow, C.BRISTLECONE_FOLLOW}, {!o.InstallSIGBUS, C.BRISTLECONE_LEAVE_SIGBUS},
	} {
		if flag.set {
			flags |= flag.flag
		}
	}
	return flags
}

// Pool is an open pool, for any number of goroutines.
type Pool struct {
	members *members
	handle  uintptr
}

// Open opens a pool. It returns [ErrInUse] while another process or handle has it open, and [ErrAbsent] if it does not
// exist and is not to be created.
func Open(path string, options Options) (*Pool, error) {
	if C.bristlecone_abi_version() != C.BRISTLECONE_ABI_VERSION {
		return nil, usage("the C library has another interface than this package: build both again")
	}
	if options.Interval%time.Millisecond != 0 || options.Interval < 0 || options.Interval/time.Millisecond > 1<<31 {
		return nil, usage("Interval is not a number of whole milliseconds")
	}
	if options.RecoveryThreads < 0 {
		return nil, usage("RecoveryThreads is negative")
	}
	pool := &Pool{members: &members{open: map[uintptr]C.int{}}}
	err := withNames(func(names []*C.char) error {
		journal := names[1]
		if options.Journal == "" {
			journal = nil
		}
		of := C.br_open(names[0], options.flags(), C.uint32_t(options.Domain), C.uint64_t(options.MaxBytes), C.size_t(options.RecoveryThreads),
			C.uint32_t(options.Durability), C.uint32_t(options.Interval/time.Millisecond), journal, C.uint64_t(options.CursorLimit))
		pool.handle = uintptr(of.word)
		return failure(of)
	}, path, options.Journal)
	if err != nil {
		return nil, err
	}
	pool.members.pool = pool.handle
	addPoolCleanup(pool)
	return pool, nil
}

const (
	waitFirst = time.Millisecond
	waitMax   = 100 * time.Millisecond
)

// OpenWait opens a pool as [Open] does. While another process or handle has it open, or while there is no writer to
// follow, it tries again until the context is done, and then returns the error of the context and of the last attempt.
func OpenWait(ctx context.Context, path string, options Options) (*Pool, error) {
	for wait := waitFirst; ; wait = min(2*wait, waitMax) {
		pool, err := Open(path, options)
		if status := statusOf(err); status != ErrInUse && (status != ErrNoWriter || !options.Follow) {
			return pool, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// Close closes everything that was opened in the pool, and then the pool, so that another process can open it. It waits
// for calls of other goroutines, up to ten seconds. Again, it does nothing.
func (p *Pool) Close() error {
	if p == nil || p.members == nil {
		return errClosed
	}
	return p.members.close()
}

// call makes a call on the pool's handle.
func (p *Pool) call(use func(pool C.uintptr_t) C.br_result) (C.br_result, error) {
	if p == nil || p.members == nil || p.members.isClosed() {
		return C.br_result{}, errClosed
	}
	of := use(C.uintptr_t(p.handle))
	err := failure(of)
	if statusOf(err) == ErrUsage && p.members.isClosed() {
		err = errClosed
	}
	keepAlive(p)
	return of, err
}

// Info describes a pool.
type Info struct {
	// Domain is the domain in force, and Detected that of the medium.
	Domain, Detected Domain
	// WasClean says whether the last user closed the pool.
	WasClean bool
	// ReadOnly says whether it is open for reading only, and Following whether another process writes to it.
	ReadOnly, Following bool
	// Format is the version of the file format.
	Format uint64
	// Sizes in bytes.
	FileBytes, MaxBytes, ChunkBytes uint64
	// Chunks is the number of chunks, and ChunksFree that of those without an owner.
	Chunks, ChunksFree uint64
	// UUID identifies the pool.
	UUID string
}

// Info returns information about the pool.
func (p *Pool) Info() (Info, error) {
	var known C.bristlecone_pool_info
	_, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_pool_info(pool, &known) })
	return Info{
		Domain: Domain(known.domain), Detected: Domain(known.detected_domain), WasClean: known.was_clean != 0,
		ReadOnly: known.read_only != 0, Following: known.following != 0, Format: uint64(known.format),
		FileBytes: uint64(known.file_bytes), MaxBytes: uint64(known.max_bytes), ChunkBytes: uint64(known.chunk_bytes),
		Chunks: uint64(known.chunks), ChunksFree: uint64(known.chunks_free), UUID: C.GoString(&known.uuid[0]),
	}, err
}

// JournalStatus is the state of a pool's journal. LSNs count the bytes of all entries.
type JournalStatus struct {
	// Durability says when a write returns.
	Durability Durability
	// Interval is the time of DurabilityInterval.
	Interval time.Duration
	// LSN is that behind the last entry, and DurableLSN that up to which entries are durable.
	LSN, DurableLSN uint64
	// CheckpointLSN is that of the begin of the last checkpoint, if HasCheckpoint.
	CheckpointLSN uint64
	HasCheckpoint bool
	// BytesSinceCheckpoint are the bytes of entries since then, and SegmentBytes those of their files.
	BytesSinceCheckpoint, SegmentBytes uint64
	// Syncs is the number of syncs since the pool was opened, with their durations.
	Syncs                               uint64
	SyncMean, SyncP50, SyncP99, SyncMax time.Duration
	// OldestLSN is that of the oldest commit that is kept: a stream of changes can begin there.
	OldestLSN uint64
	// Failed says whether a write or sync has failed, so that all later writes fail.
	Failed bool
}

// JournalStatus returns the state of the journal. It returns [ErrAbsent] for a pool that does not write one.
func (p *Pool) JournalStatus() (JournalStatus, error) {
	var known C.bristlecone_journal_status
	_, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_journal_status(pool, &known) })
	return JournalStatus{
		Durability: Durability(known.durability), Interval: time.Duration(known.interval_ms) * time.Millisecond,
		LSN: uint64(known.lsn), DurableLSN: uint64(known.durable_lsn), CheckpointLSN: uint64(known.checkpoint_lsn),
		HasCheckpoint: uint64(known.checkpoint_lsn) != ^uint64(0), BytesSinceCheckpoint: uint64(known.bytes_since_checkpoint),
		SegmentBytes: uint64(known.segment_bytes), Syncs: uint64(known.syncs), SyncMean: time.Duration(known.sync_mean_ns),
		SyncP50: time.Duration(known.sync_p50_ns), SyncP99: time.Duration(known.sync_p99_ns),
		SyncMax: time.Duration(known.sync_max_ns), Failed: known.failed != 0,
		OldestLSN: uint64(known.oldest_lsn),
	}, err
}

// TreeInfo describes a tree in a pool's directory.
type TreeInfo struct {
	Name, KeyKind, ValueKind, Design string
}

// Trees returns the trees of the pool, in directory order.
func (p *Pool) Trees() ([]TreeInfo, error) {
	of, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_trees(pool) })
	strings := texts(of)
	trees := make([]TreeInfo, len(strings)/4)
	for at := range trees {
		four := strings[4*at : 4*at+4]
		trees[at] = TreeInfo{four[0], four[1], four[2], four[3]}
	}
	return trees, err
}

// Issue is damage that a check found.
type Issue struct {
	Location, What string
}

func issues(of C.br_result, err error) ([]Issue, error) {
	strings := texts(of)
	found := make([]Issue, len(strings)/2)
	for at := range found {
		found[at] = Issue{strings[2*at], strings[2*at+1]}
	}
	if len(found) > 0 {
		err = nil
	}
	return found, err
}

// Check verifies the pool's own structures, and returns the damage: normally none.
func (p *Pool) Check() ([]Issue, error) {
	return issues(p.call(func(pool C.uintptr_t) C.br_result { return C.br_check(C.BR_POOL, pool) }))
}

func (p *Pool) manage(what C.int, name, to string, bytes uint64) error {
	return withNames(func(names []*C.char) error {
		_, err := p.call(func(pool C.uintptr_t) C.br_result {
			return C.br_manage(what, pool, names[0], names[1], C.uint64_t(bytes))
		})
		return err
	}, name, to)
}

// DropTree drops a tree with all its items. It returns [ErrInUse] if the tree is open.
func (p *Pool) DropTree(name string) error { return p.manage(C.BR_DROP, name, "", 0) }

// ClearTree removes every item of a tree atomically. It returns [ErrInUse] if the tree is open.
func (p *Pool) ClearTree(name string) error { return p.manage(C.BR_CLEAR, name, "", 0) }

// RenameTree renames a tree, open or not.
func (p *Pool) RenameTree(from, to string) error { return p.manage(C.BR_RENAME, from, to, 0) }

// Prefault allocates space in advance.
func (p *Pool) Prefault(bytes uint64) error { return p.manage(C.BR_PREFAULT, "", "", bytes) }

// wait runs a call that may wait for the disk, until the context is done. Then the call still continues.
func (p *Pool) wait(ctx context.Context, what C.int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- p.manage(what, "", "", 0) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Sync makes everything durable that was written so far. If the context ends first, it returns the context's error, and
// the sync continues.
func (p *Pool) Sync(ctx context.Context) error { return p.wait(ctx, C.BR_SYNC) }

// Checkpoint writes all items to a new checkpoint in the journal, and frees the space of the entries before it. If the
// context ends first, it returns the context's error, and the checkpoint continues.
func (p *Pool) Checkpoint(ctx context.Context) error { return p.wait(ctx, C.BR_CHECKPOINT) }

// PruneJournal does what Checkpoint does, and removes all files that are not needed any more.
func (p *Pool) PruneJournal(ctx context.Context) error { return p.wait(ctx, C.BR_PRUNE) }

func (p *Pool) begin(kind C.int, maxBytes uint64) (uintptr, error) {
	of, err := p.call(func(pool C.uintptr_t) C.br_result { return C.br_begin(kind, pool, C.size_t(maxBytes)) })
	return uintptr(of.word), err
}

// How often Transact calls its function.
const attemptsMax = 256

// Transact calls a function with a transaction, and commits it if the function returns nil. If a concurrent write
// changed data that the transaction read, it calls the function again, up to 256 times and until the context is done.
//
// An error or a panic of the function rolls the transaction back: nothing has changed.
func (p *Pool) Transact(ctx context.Context, work func(tx *Transaction) error) error {
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := p.transactOnce(work)
		if statusOf(err) != ErrConflict || attempt+1 == attemptsMax {
			return err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(min(attempt, 50)+1) * int64(10*time.Microsecond))))
	}
}

func (p *Pool) transactOnce(work func(tx *Transaction) error) error {
	tx, err := p.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}
