package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Supplier;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A stream of the durable changes of a pool with a journal, in the order of their LSNs. Only one thread at a time may use it;
 * a second one gets {@link Status#IN_USE}. Any thread may close it, which ends the waiting of another one.
 *
 * <p>As an iterable it ends at the last durable commit. {@link #take()} and {@link #poll(Duration)} wait for more.
 *
 * <pre>{@code
 * try (Changes changes = pool.changesOf("audit")) {
 *     while (true) {
 *         Changes.Commit commit = changes.take();
 *         apply(commit);
 *         changes.advance(commit.nextLsn());
 *     }
 * }
 * }</pre>
 */
public final class Changes implements AutoCloseable, Iterable<Changes.Commit> {
    /** Says what a change did. */
    public enum What {
        /** A key got a value. */
        PUT,
        /** A key was removed. */
        REMOVE,
        /** A tree was created. If it was created with items, they follow in the same commit. */
        CREATE,
        /** A tree was dropped, with all items. */
        DROP,
        /** A tree was renamed. */
        RENAME,
        /** All items of a tree were removed. */
        CLEAR,
        /** A change that this version does not know. */
        OTHER
    }

    /**
     * A change of a tree. What does not apply is null.
     *
     * @param what what it did
     * @param tree the name of the tree before the change; of a created tree, its name
     * @param treeId the number of the tree, which no other tree had at the same time
     * @param newTreeId the number afterwards; another one after {@link What#CLEAR}
     * @param keyKind the kind of its keys
     * @param valueKind the kind of its values
     * @param key the key of a put or remove, with tuples as lists
     * @param value the new value of a put
     * @param existed for a put or remove, whether the key was present before; empty if the write did not look
     * @param renamedTo the new name of a renamed tree
     */
    public record Change(What what, String tree, int treeId, int newTreeId, String keyKind, String valueKind, Object key,
        Object value, Optional<Boolean> existed, String renamedTo) {
    }

    /**
     * Changes that were applied together: a write, up to 16 writes of a call with several keys, a batch or transaction, or a
     * change of the trees.
     *
     * @param lsn its LSN
     * @param nextLsn the LSN from which a later stream continues behind it
     * @param time when it was written to the journal; never earlier than that of an earlier commit
     * @param changes the changes, at least one
     */
    public record Commit(long lsn, long nextLsn, Instant time, List<Change> changes) {
        /** Copies the changes. */
        public Commit {
            changes = List.copyOf(changes);
        }
    }

    /**
     * A position in the journal with a name.
     *
     * @param name its name
     * @param lsn where the next stream begins: commits from there on are kept
     * @param pinnedBytes the bytes of the files that are kept only for it
     * @param time when it was advanced last
     * @param isDropped whether it held back too much, so that nothing is kept for it any more
     */
    public record Cursor(String name, long lsn, long pinnedBytes, Instant time, boolean isDropped) {
    }

    private static final long CHANGE_BYTES = 120;
    /** How long one call of the library waits. An interrupt is noticed after this time. */
    private static final long WAIT_MS = 20;
    private static final Duration WAIT = Duration.ofMillis(WAIT_MS);

    private final Pool pool;
    private final Handle handle;
    private final AtomicBoolean isBusy = new AtomicBoolean();
    private final Map<String, Kind<?>> kinds = new HashMap<>();
    /** An error of the stream, which all later calls throw. */
    private BristleconeException failed;

    Changes(Pool pool, Scratch scratch, Pool.Opening opening) {
        this.pool = pool;
        handle = pool.open(scratch, Native.CHANGES_CLOSE, this, opening);
    }

    /**
     * Returns the next commit, without waiting.
     *
     * @return the commit, or null if none is durable yet
     */
    public Commit poll() {
        return alone(() -> read(0));
    }

    /**
     * Waits for the next commit.
     *
     * @param patience how long
     * @return the commit, or null if none became durable in this time
     * @throws InterruptedException if the thread is interrupted; the stream is intact
     */
    public Commit poll(Duration patience) throws InterruptedException {
        long begun = System.nanoTime();
        begin();
        try {
            while (true) {
                Duration waited = Duration.ofNanos(System.nanoTime() - begun);
                Duration left = patience.compareTo(waited) > 0 ? patience.minus(waited) : Duration.ZERO;
                Commit commit = await(left.compareTo(WAIT) > 0 ? WAIT_MS : left.toMillis());
                if (commit != null || left.isZero()) {
                    return commit;
                }
            }
        } finally {
            isBusy.set(false);
        }
    }

    /**
     * Waits for the next commit.
     *
     * @return the commit
     * @throws InterruptedException if the thread is interrupted; the stream is intact
     */
    public Commit take() throws InterruptedException {
        begin();
        try {
            while (true) {
                Commit commit = await(WAIT_MS);
                if (commit != null) {
                    return commit;
                }
            }
        } finally {
            isBusy.set(false);
        }
    }

    /** Waits for the next commit. A virtual thread leaves its carrier to others. */
    private Commit await(long millis) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        boolean isVirtual = Thread.currentThread().isVirtual();
        Commit commit = read(isVirtual ? 0 : millis);
        if (commit == null && isVirtual) {
            Thread.sleep(millis);
        }
        return commit;
    }

    /**
     * Moves the cursor of the stream, durably. The next stream of the cursor begins there, also after a crash.
     *
     * @param lsn usually the {@link Commit#nextLsn()} of the last commit whose effects are durable
     */
    public void advance(long lsn) {
        alone(() -> {
            check(Native.CHANGES_ADVANCE.on(handle.number(), lsn));
            return null;
        });
    }

    @Override
    public Iterator<Commit> iterator() {
        return new Durable();
    }

    /**
     * Returns the commits that are durable as a stream, which does not wait for others.
     *
     * @return the commits
     */
    public Stream<Commit> stream() {
        int is = Spliterator.ORDERED | Spliterator.NONNULL;
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(iterator(), is), false);
    }

    /** Closes the stream; its cursor stays. A thread that waits on it gets {@link Status#CLOSED}. Again, it does nothing. */
    @Override
    public void close() {
        handle.close();
        Reference.reachabilityFence(pool);
    }

    private void begin() {
        handle.number();
        if (!isBusy.compareAndSet(false, true)) {
            throw new BristleconeException(Status.IN_USE, "another thread uses the stream of changes");
        }
    }

    private <T> T alone(Supplier<T> work) {
        begin();
        try {
            return work.get();
        } finally {
            isBusy.set(false);
        }
    }

    private void check(int status) {
        Reference.reachabilityFence(this);
        if (status != Native.OK) {
            throw pool.orPruned(Handle.error(status, handle));
        }
    }

    /** Returns the next commit, or null if none becomes durable in a time. */
    private Commit read(long millis) {
        if (failed != null) {
            throw failed;
        }
        try {
            return collect(millis);
        } catch (BristleconeException error) {
            failed = error.status() == Status.CLOSED ? null : error;
            throw error;
        }
    }

    private Commit collect(long millis) {
        List<Change> changes = new ArrayList<>();
        while (true) {
            MemorySegment of = Scratch.begin().zeros(CHANGE_BYTES);
            of.set(ValueLayout.JAVA_LONG, 0, CHANGE_BYTES);
            int status = Native.CHANGES_NEXT.on(handle.number(), millis, of);
            if (status == Native.ABSENT) {
                // Throws if the stream was closed meanwhile.
                handle.number();
                return null;
            }
            check(status);
            changes.add(change(of));
            Reference.reachabilityFence(this);
            if (of.get(ValueLayout.JAVA_INT, 40) != 0) {
                return new Commit(word(of, 8), word(of, 16), Instant.ofEpochMilli(word(of, 24)), changes);
            }
        }
    }

    private static long word(MemorySegment of, long at) {
        return of.get(ValueLayout.JAVA_LONG, at);
    }

    private static String text(MemorySegment of, long at) {
        return Native.text(of.get(ValueLayout.ADDRESS, at));
    }

    private Change change(MemorySegment of) {
        int code = of.get(ValueLayout.JAVA_INT, 32);
        What what = code >= 1 && code <= What.OTHER.ordinal() ? What.values()[code - 1] : What.OTHER;
        int existed = of.get(ValueLayout.JAVA_INT, 36);
        String keyKind = text(of, 56);
        String valueKind = text(of, 64);
        Object key = what == What.PUT || what == What.REMOVE ? datum(keyKind, of, 72) : null;
        Object value = what == What.PUT ? datum(valueKind, of, 88) : null;
        return new Change(what, text(of, 48), of.get(ValueLayout.JAVA_INT, 44), of.get(ValueLayout.JAVA_INT, 112), keyKind, valueKind,
            key, value, existed < 0 ? Optional.empty() : Optional.of(existed == 1), what == What.RENAME ? text(of, 104) : null);
    }

    /** Reads a key or a value, whose address and length are in a struct. */
    private Object datum(String kind, MemorySegment of, long at) {
        return kinds.computeIfAbsent(kind, Kind::parse).decode(Native.copy(of.get(ValueLayout.ADDRESS, at), word(of, at + 8)));
    }

    /** Iterates over the durable commits. */
    private final class Durable implements Iterator<Commit> {
        private Commit next;

        @Override
        public boolean hasNext() {
            if (next == null) {
                next = poll();
            }
            return next != null;
        }

        @Override
        public Commit next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            Commit commit = next;
            next = null;
            return commit;
        }
    }
}
