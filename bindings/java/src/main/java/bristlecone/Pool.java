package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * An open pool: a file with trees, for any number of threads.
 *
 * <p>Closing it closes everything that was opened in it, and waits for calls of other threads, up to ten seconds. What is
 * used afterwards throws with {@link Status#CLOSED}.
 *
 * <pre>{@code
 * try (Pool pool = Pool.open(Path.of("/dev/shm/trees.pool"), new Options().create())) {
 *     Tree<String, Long> ages = pool.tree("ages", Kind.STR, Kind.U64);
 *     ages.put("Methuselah", 4857L); // durable when it returns
 * }
 * }</pre>
 */
public final class Pool implements AutoCloseable {
    /**
     * A tree in the directory of a pool.
     *
     * @param name its name
     * @param keyKind the kind of its keys
     * @param valueKind the kind of its values
     * @param design its design
     */
    public record Entry(String name, String keyKind, String valueKind, String design) {
    }

    /**
     * Damage that a check found.
     *
     * @param location where
     * @param what the damage
     */
    public record Issue(String location, String what) {
    }

    /**
     * Information about a pool.
     *
     * @param domain the domain in force
     * @param wasClean whether the last user closed it
     * @param isReadOnly whether it is open for reading only
     * @param isFollowing whether another process writes to it
     * @param fileBytes the size of its file
     * @param maxBytes its maximum size
     * @param uuid its identity
     */
    public record Info(Options.Domain domain, boolean wasClean, boolean isReadOnly, boolean isFollowing, long fileBytes,
        long maxBytes, String uuid) {
    }

    /**
     * The state of a pool's journal. LSNs count the bytes of all entries.
     *
     * @param durability when a write returns
     * @param interval the time of {@link Options.Durability#INTERVAL}
     * @param lsn the LSN behind the last entry
     * @param durableLsn the LSN up to which entries are durable
     * @param checkpointLsn the LSN of the begin of the last checkpoint, or -1
     * @param bytesSinceCheckpoint the bytes of entries since then
     * @param syncs the number of syncs since the pool was opened
     * @param oldestLsn the LSN of the oldest commit that is kept: a stream of changes can begin there
     * @param isFailed whether a write or sync has failed, so that all later writes fail
     */
    public record JournalStatus(Options.Durability durability, Duration interval, long lsn, long durableLsn,
        long checkpointLsn, long bytesSinceCheckpoint, long syncs, long oldestLsn, boolean isFailed) {
    }

    private static final long INFO_BYTES = 160;
    private static final long JOURNAL_BYTES = 112;
    private static final int ATTEMPTS_MAX = 256;
    private static final long DURABLE_END = -1;

    private final Handle.Members members;
    private final long number;

    private Pool(long number) {
        this.number = number;
        members = new Handle.Members(number);
        Handle.cleanPool(this, members);
    }

    /**
     * Opens a pool.
     *
     * @param path its file
     * @param options how
     * @return the pool
     */
    public static Pool open(Path path, Options options) {
        Scratch scratch = Scratch.begin();
        MemorySegment name = scratch.putName(path.toString());
        MemorySegment how = options.to(scratch);
        return new Pool(opened(scratch, to -> Native.POOL_OPEN.on(name, how, to)));
    }

    /**
     * Opens a pool. While another process or handle has it open, or while there is no writer to follow, it tries again.
     *
     * @param path its file
     * @param options how
     * @param patience the time after which it throws with {@link Status#IN_USE} or {@link Status#NO_WRITER}
     * @return the pool
     * @throws InterruptedException if the thread is interrupted while it waits
     */
    public static Pool open(Path path, Options options, Duration patience) throws InterruptedException {
        long begun = System.nanoTime();
        for (long wait = 1;; wait = Math.min(2 * wait, 100)) {
            try {
                return open(path, options);
            } catch (BristleconeException error) {
                boolean mayChange = error.status() == Status.IN_USE || error.status() == Status.NO_WRITER && options.follows();
                if (!mayChange || System.nanoTime() - begun >= patience.toNanos()) {
                    throw error;
                }
            }
            TimeUnit.MILLISECONDS.sleep(wait);
        }
    }

    /** A call that writes a handle. */
    @FunctionalInterface
    interface Opening {
        int to(MemorySegment handle);
    }

    private static long opened(Scratch scratch, Opening opening) {
        MemorySegment to = scratch.zeros(8);
        int status = opening.to(to);
        if (status != Native.OK) {
            throw Native.error(status);
        }
        return to.get(ValueLayout.JAVA_LONG, 0);
    }

    /** Opens an object in the pool; returns its handle. */
    Handle open(Scratch scratch, Native.Call close, Object owner, Opening opening) {
        try {
            return new Handle(members, opened(scratch, opening), close, owner);
        } catch (BristleconeException error) {
            throw members.isClosed() ? BristleconeException.closed() : error;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Returns the number of the open pool. */
    long number() {
        if (members.isClosed()) {
            throw BristleconeException.closed();
        }
        return number;
    }

    private void check(int status) {
        Reference.reachabilityFence(this);
        if (status != Native.OK) {
            BristleconeException error = Native.error(status);
            throw error.status() == Status.USAGE && members.isClosed() ? BristleconeException.closed() : error;
        }
    }

    /**
     * Opens the tree of this name, or creates it with the default design.
     *
     * @param name its name
     * @param keys the kind of its keys
     * @param values the kind of its values
     * @param <K> the type of its keys
     * @param <V> the type of its values
     * @return the tree
     */
    public <K, V> Tree<K, V> tree(String name, Kind<K> keys, Kind<V> values) {
        Scratch scratch = Scratch.begin();
        MemorySegment[] names = {scratch.putName(name), scratch.putName(keys.name()), scratch.putName(values.name())};
        return new Tree<>(this, name, keys, values, scratch,
            to -> Native.TREE_OPEN_OR_CREATE.on(number(), names[0], names[1], names[2], to));
    }

    /**
     * Opens the tree of this name with its own kinds, with tuples as lists.
     *
     * @param name its name
     * @return the tree
     */
    public Tree<Object, Object> tree(String name) {
        for (Entry entry : trees()) {
            if (entry.name.equals(name)) {
                return tree(name, ofAny(Kind.parse(entry.keyKind)), ofAny(Kind.parse(entry.valueKind)));
            }
        }
        throw new BristleconeException(Status.ABSENT, "the pool has no tree \"" + name + "\"");
    }

    @SuppressWarnings("unchecked")
    private static Kind<Object> ofAny(Kind<?> kind) {
        return (Kind<Object>) kind;
    }

    /**
     * Creates a tree, and fails if one of this name exists.
     *
     * @param name its name
     * @param keys the kind of its keys
     * @param values the kind of its values
     * @param design {@code sstree}, {@code nbtree}, {@code cclbtree}, {@code lodgetree} or {@code wotree}
     * @param options options of the design, by name
     * @param <K> the type of its keys
     * @param <V> the type of its values
     * @return the tree
     */
    public <K, V> Tree<K, V> createTree(String name, Kind<K> keys, Kind<V> values, String design, Map<String, Long> options) {
        return createTree(name, keys, values, design, options, Duration.ZERO);
    }

    /**
     * Creates a tree whose values expire: see {@link Kind#expiring}.
     *
     * @param name its name, which no tree has
     * @param keys the kind of its keys
     * @param values the kind of its values
     * @param design {@code sstree}, {@code nbtree}, {@code cclbtree}, {@code lodgetree} or {@code wotree}
     * @param options options of the design, by name
     * @param expireAfter how long a value lives if its write names no expiry, in whole milliseconds; with zero it does not
     *     expire
     * @param <K> the type of its keys
     * @param <V> the type of its values
     * @return the tree
     */
    public <K, V> Tree<K, V> createTree(String name, Kind<K> keys, Kind<V> values, String design, Map<String, Long> options,
        Duration expireAfter) {
        if (expireAfter.isNegative()) {
            throw BristleconeException.usage("a negative time after which values expire");
        }
        Scratch scratch = Scratch.begin();
        MemorySegment[] names = {scratch.putName(name), scratch.putName(keys.name()), scratch.putName(values.name())};
        MemorySegment designName = scratch.putName(design);
        List<MemorySegment> optionNames = options.keySet().stream().map(scratch::putName).toList();
        MemorySegment given = scratch.zeros(16L * Math.max(options.size(), 1));
        List<Long> numbers = List.copyOf(options.values());
        for (int at = 0; at < numbers.size(); at++) {
            given.set(ValueLayout.ADDRESS, 16L * at, optionNames.get(at));
            given.set(ValueLayout.JAVA_LONG, 16L * at + 8, numbers.get(at));
        }
        MemorySegment how = scratch.zeros(40);
        how.set(ValueLayout.JAVA_LONG, 0, 40);
        how.set(ValueLayout.ADDRESS, 8, designName);
        how.set(ValueLayout.ADDRESS, 16, given);
        how.set(ValueLayout.JAVA_LONG, 24, numbers.size());
        how.set(ValueLayout.JAVA_LONG, 32, Expiry.wholeMillis(expireAfter));
        return new Tree<>(this, name, keys, values, scratch,
            to -> Native.TREE_CREATE.on(number(), names[0], names[1], names[2], how, to));
    }

    /**
     * Returns the trees of the pool, in directory order.
     *
     * @return the trees
     */
    public List<Entry> trees() {
        Native.Shown shown = Native.Shown.begin(0);
        check(Native.POOL_TREES.on(number(), Native.SHOW_TREE, MemorySegment.NULL));
        shown.verify();
        List<Entry> entries = new ArrayList<>();
        for (int at = 0; at < shown.texts.size(); at += 4) {
            List<String> four = shown.texts.subList(at, at + 4);
            entries.add(new Entry(four.get(0), four.get(1), four.get(2), four.get(3)));
        }
        return entries;
    }

    /**
     * Drops a tree with all its items. The tree must not be open.
     *
     * @param name its name
     */
    public void dropTree(String name) {
        check(Native.POOL_DROP.on(number(), Scratch.begin().putName(name)));
    }

    /**
     * Removes every item of a tree atomically. The tree must not be open.
     *
     * @param name its name
     */
    public void clearTree(String name) {
        check(Native.POOL_CLEAR.on(number(), Scratch.begin().putName(name)));
    }

    /**
     * Renames a tree, open or not.
     *
     * @param from its name
     * @param to its new name
     */
    public void renameTree(String from, String to) {
        Scratch scratch = Scratch.begin();
        check(Native.POOL_RENAME.on(number(), scratch.putName(from), scratch.putName(to)));
    }

    /**
     * Allocates space in advance.
     *
     * @param bytes its size
     */
    public void prefault(long bytes) {
        check(Native.POOL_PREFAULT.on(number(), bytes));
    }

    /** Makes everything durable that was written so far. An interrupt does not end the wait, and stays set. */
    public void sync() {
        check(Native.POOL_SYNC.on(number()));
    }

    /** Writes all items to a new checkpoint in the journal, and frees the space of the entries before it. */
    public void checkpoint() {
        check(Native.POOL_CHECKPOINT.on(number()));
    }

    /** Does what {@link #checkpoint()} does, and removes all files of the journal that are not needed any more. */
    public void pruneJournal() {
        check(Native.POOL_PRUNE.on(number()));
    }

    /**
     * Returns the state of the journal. Throws with {@link Status#ABSENT} for a pool that does not write one.
     *
     * @return the state
     */
    public JournalStatus journalStatus() {
        MemorySegment to = struct(JOURNAL_BYTES);
        check(Native.POOL_JOURNAL.on(number(), to));
        return new JournalStatus(Options.Durability.values()[to.get(ValueLayout.JAVA_INT, 8)],
            Duration.ofMillis(to.get(ValueLayout.JAVA_INT, 12)), word(to, 16), word(to, 24), word(to, 32), word(to, 40), word(to, 56),
            word(to, 104), to.get(ValueLayout.JAVA_INT, 96) != 0);
    }

    /**
     * Opens a stream of the durable changes, in a pool with a journal. Throws a {@link PrunedException} if a checkpoint has
     * removed the commit at the LSN.
     *
     * @param lsn where it begins: 0 for the first change, or the next LSN of a commit that was seen before
     * @return the stream
     */
    public Changes changes(long lsn) {
        return orPruned(() -> new Changes(this, Scratch.begin(), to -> Native.CHANGES_OPEN.on(number(), lsn, to)));
    }

    /**
     * Opens a stream of changes at a cursor, which {@link Changes#advance} moves. One stream at a time has the cursor. Throws a
     * {@link PrunedException} if the cursor held back too much and was dropped.
     *
     * @param cursor the name of the cursor
     * @return the stream
     */
    public Changes changesOf(String cursor) {
        Scratch scratch = Scratch.begin();
        MemorySegment name = scratch.putName(cursor);
        return orPruned(() -> new Changes(this, scratch, to -> Native.CHANGES_OPEN_CURSOR.on(number(), name, to)));
    }

    /**
     * Creates a cursor behind the last durable commit: commits from there on are kept until it is moved or dropped, up to
     * {@link Options#cursorLimit}.
     *
     * @param name its name: 1 to 64 letters, digits, dots, hyphens and underscores
     * @return its LSN
     */
    public long createCursor(String name) {
        return createCursorAt(name, DURABLE_END);
    }

    /**
     * Creates a cursor. Throws a {@link PrunedException} if the commit at the LSN is not kept any more.
     *
     * @param name its name: 1 to 64 letters, digits, dots, hyphens and underscores
     * @param lsn its LSN: commits from there on are kept
     * @return its LSN
     */
    public long createCursor(String name, long lsn) {
        if (lsn < 0) {
            throw BristleconeException.usage(lsn + " is no LSN");
        }
        return createCursorAt(name, lsn);
    }

    private long createCursorAt(String name, long lsn) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.putName(name);
        MemorySegment begun = scratch.zeros(8);
        return orPruned(() -> {
            check(Native.CURSOR_CREATE.on(number(), bytes, lsn, begun));
            return begun.get(ValueLayout.JAVA_LONG, 0);
        });
    }

    /**
     * Removes a cursor, or what is left of one that was dropped.
     *
     * @param name its name
     */
    public void dropCursor(String name) {
        check(Native.CURSOR_DROP.on(number(), Scratch.begin().putName(name)));
    }

    /**
     * Returns the cursors. Throws with {@link Status#ABSENT} for a pool that does not write a journal.
     *
     * @return the cursors, ordered by name
     */
    public List<Changes.Cursor> cursors() {
        Native.Shown shown = Native.Shown.begin(0);
        check(Native.CURSORS.on(number(), Native.SHOW_CURSOR, MemorySegment.NULL));
        shown.verify();
        List<Changes.Cursor> cursors = new ArrayList<>();
        for (int at = 0; at < shown.texts.size(); at++) {
            List<Long> words = shown.indexes.subList(4 * at, 4 * at + 4);
            cursors.add(new Changes.Cursor(shown.texts.get(at), words.get(0), words.get(1), Instant.ofEpochMilli(words.get(2)), words.get(3) != 0));
        }
        return cursors;
    }

    private <T> T orPruned(Supplier<T> call) {
        try {
            return call.get();
        } catch (BristleconeException error) {
            throw orPruned(error);
        }
    }

    /** Adds the oldest LSN to an error for commits that are not kept any more. */
    BristleconeException orPruned(BristleconeException error) {
        return error.status() == Status.PRUNED ? new PrunedException(error.getMessage(), journalStatus().oldestLsn) : error;
    }

    private static MemorySegment struct(long bytes) {
        MemorySegment to = Scratch.begin().zeros(bytes);
        to.set(ValueLayout.JAVA_LONG, 0, bytes);
        return to;
    }

    private static long word(MemorySegment from, long at) {
        return from.get(ValueLayout.JAVA_LONG, at);
    }

    /**
     * Returns information about the pool.
     *
     * @return the information
     */
    public Info info() {
        MemorySegment to = struct(INFO_BYTES);
        check(Native.POOL_INFO.on(number(), to));
        return new Info(Options.Domain.values()[to.get(ValueLayout.JAVA_INT, 8)], to.get(ValueLayout.JAVA_INT, 16) != 0,
            to.get(ValueLayout.JAVA_INT, 20) != 0, to.get(ValueLayout.JAVA_INT, 152) != 0, word(to, 32), word(to, 40),
            to.asSlice(88, 64).getString(0));
    }

    /** Makes a check; returns the damage that it shows. */
    static List<Issue> issues(Function<MemorySegment, Integer> check, Function<Integer, BristleconeException> error) {
        Native.Shown shown = Native.Shown.begin(0);
        int status = check.apply(Native.SHOW_ISSUE);
        shown.verify();
        if (status != Native.OK && shown.texts.isEmpty()) {
            throw error.apply(status);
        }
        List<Issue> issues = new ArrayList<>();
        for (int at = 0; at < shown.texts.size(); at += 2) {
            issues.add(new Issue(shown.texts.get(at), shown.texts.get(at + 1)));
        }
        return issues;
    }

    /**
     * Verifies the pool's own structures.
     *
     * @return the damage; normally none
     */
    public List<Issue> check() {
        return issues(show -> Native.POOL_CHECK.on(number(), show, MemorySegment.NULL), Native::error);
    }

    /**
     * Begins a batch.
     *
     * @return the batch
     */
    public Batch batch() {
        return new Batch(this);
    }

    /**
     * Takes a snapshot.
     *
     * @return the snapshot
     */
    public Snapshot snapshot() {
        return snapshot(0);
    }

    /**
     * Takes a snapshot that keeps at most about this many bytes of memory. If more is needed, reads of it throw with
     * {@link Status#SNAPSHOT_TOO_OLD}.
     *
     * @param maxBytes the number of bytes; 0 is unlimited
     * @return the snapshot
     */
    public Snapshot snapshot(long maxBytes) {
        return new Snapshot(this, maxBytes);
    }

    /**
     * Begins a transaction. {@link #transact} also repeats it after a conflict.
     *
     * @return the transaction
     */
    public Transaction transaction() {
        return new Transaction(this);
    }

    /**
     * Calls a function with a transaction, and commits it. If a concurrent write changed data that the transaction read,
     * it calls the function again, up to 256 times. If the function throws, nothing has changed.
     *
     * @param work the function
     * @param <R> the type of its result
     * @return its result
     */
    public <R> R transact(Function<Transaction, R> work) {
        for (int attempt = 1;; attempt++) {
            try (Transaction transaction = transaction()) {
                R result = work.apply(transaction);
                transaction.commit();
                return result;
            } catch (BristleconeException error) {
                if (error.status() != Status.CONFLICT || attempt == ATTEMPTS_MAX) {
                    throw error;
                }
            }
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(10_000L * Math.min(attempt, 50)));
        }
    }

    /** Closes everything that was opened in the pool, and then the pool. Again, it does nothing. */
    @Override
    public void close() {
        members.endAll();
    }
}
