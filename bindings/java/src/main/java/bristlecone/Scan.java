package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.Iterator;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/**
 * A range of keys, in ascending order. Each method returns a narrower one, or the same in another order; none changes this.
 *
 * <p>An iteration holds no lock and no handle: it fetches up to 1024 items at a time. It returns every key that exists
 * throughout, each once, while others write.
 *
 * @param <K> the type of keys
 * @param <V> the type of values
 */
public final class Scan<K, V> implements Iterable<Map.Entry<K, V>> {
    private static final int FROM_EXCLUDED = 1;
    private static final int TO_INCLUDED = 2;
    private static final int CHUNK_FIRST = 16;
    private static final int CHUNK_MAX = 1024;
    private static final long CHUNK_BYTES = 256 << 10;
    private static final long RANGE_BYTES = 48;

    private final Tree<K, V> tree;
    private final Snapshot snapshot;
    private final Transaction transaction;
    private byte[] from;
    private byte[] to;
    private byte[] prefix;
    private int flags;
    private boolean isReverse;
    private long limit = Long.MAX_VALUE;

    Scan(Tree<K, V> tree, Snapshot snapshot, Transaction transaction) {
        this.tree = tree;
        this.snapshot = snapshot;
        this.transaction = transaction;
    }

    private Scan(Scan<K, V> other) {
        this(other.tree, other.snapshot, other.transaction);
        from = other.from;
        to = other.to;
        prefix = other.prefix;
        flags = other.flags;
        isReverse = other.isReverse;
        limit = other.limit;
    }

    Scan<K, V> ofPrefix(K key) {
        Scan<K, V> scan = new Scan<>(this);
        scan.prefix = tree.keys().encode(key);
        return scan;
    }

    private Scan<K, V> begin(K key, int flag) {
        Scan<K, V> scan = new Scan<>(this);
        scan.from = tree.keys().encode(key);
        scan.flags = flags & ~FROM_EXCLUDED | flag;
        return scan;
    }

    private Scan<K, V> end(K key, int flag) {
        Scan<K, V> scan = new Scan<>(this);
        scan.to = tree.keys().encode(key);
        scan.flags = flags & ~TO_INCLUDED | flag;
        return scan;
    }

    /**
     * Begins the range at a key.
     *
     * @param key the first key
     * @return the range
     */
    public Scan<K, V> from(K key) {
        return begin(key, 0);
    }

    /**
     * Begins the range behind a key.
     *
     * @param key the key before the first one
     * @return the range
     */
    public Scan<K, V> after(K key) {
        return begin(key, FROM_EXCLUDED);
    }

    /**
     * Ends the range before a key.
     *
     * @param key the key behind the last one
     * @return the range
     */
    public Scan<K, V> before(K key) {
        return end(key, 0);
    }

    /**
     * Ends the range with a key.
     *
     * @param key the last key
     * @return the range
     */
    public Scan<K, V> through(K key) {
        return end(key, TO_INCLUDED);
    }

    /**
     * Returns the range in the other order. A transaction reads in ascending order only.
     *
     * @return the range
     */
    public Scan<K, V> reverse() {
        Scan<K, V> scan = new Scan<>(this);
        scan.isReverse = !isReverse;
        return scan;
    }

    /**
     * Ends each iteration after a number of items.
     *
     * @param items their number
     * @return the range
     */
    public Scan<K, V> limit(long items) {
        Scan<K, V> scan = new Scan<>(this);
        scan.limit = Math.max(items, 0);
        return scan;
    }

    /**
     * Removes the items in one step: all of them or, after an exception or a crash, none. Iterations of other threads may see
     * a part of the removal, and writers of the tree wait until it ends.
     *
     * @return how many items were removed
     * @throws BristleconeException if the range has a limit or both a prefix and bounds, or is of a snapshot or a transaction
     */
    public long remove() {
        if (snapshot != null || transaction != null || limit != Long.MAX_VALUE) {
            throw BristleconeException.usage("a range with a limit, of a snapshot or of a transaction cannot be removed");
        }
        if (prefix != null && (from != null || to != null)) {
            throw BristleconeException.usage("a range has a prefix or bounds");
        }
        Scratch scratch = Scratch.begin();
        MemorySegment count = scratch.zeros(8);
        if (prefix == null) {
            tree.check(Native.REMOVE_RANGE.on(tree.number(), range(scratch), count));
        } else {
            MemorySegment bytes = scratch.put(prefix);
            tree.check(Native.REMOVE_PREFIX.on(tree.number(), bytes, bytes.byteSize(), count));
        }
        return count.get(ValueLayout.JAVA_LONG, 0);
    }

    /**
     * Returns the items as a stream.
     *
     * @return the items
     */
    public Stream<Map.Entry<K, V>> stream() {
        int is = Spliterator.ORDERED | Spliterator.DISTINCT | Spliterator.NONNULL;
        return StreamSupport.stream(() -> Spliterators.spliteratorUnknownSize(iterator(), is), is, false);
    }

    @Override
    public Iterator<Map.Entry<K, V>> iterator() {
        if (transaction != null && isReverse) {
            throw BristleconeException.usage("a scan of a transaction is in ascending order");
        }
        return new Items(new Scan<>(this));
    }

    /** Writes the bounds for the C library. */
    private MemorySegment range(Scratch scratch) {
        MemorySegment first = scratch.putOptional(from);
        MemorySegment last = scratch.putOptional(to);
        MemorySegment range = scratch.zeros(RANGE_BYTES);
        range.set(ValueLayout.JAVA_LONG, 0, RANGE_BYTES);
        range.set(ValueLayout.ADDRESS, 8, first);
        range.set(ValueLayout.JAVA_LONG, 16, first.byteSize());
        range.set(ValueLayout.ADDRESS, 24, last);
        range.set(ValueLayout.JAVA_LONG, 32, last.byteSize());
        range.set(ValueLayout.JAVA_INT, 40, flags);
        return range;
    }

    /** Fetches up to a number of items; narrows this range to those behind them. */
    private boolean fetch(int items, Deque<byte[][]> fetched) {
        boolean isEnded = transaction == null ? fetchByIterator(items, fetched) : fetchInTransaction(items, fetched);
        if (!fetched.isEmpty()) {
            byte[] last = fetched.getLast()[0];
            flags = isReverse ? flags & ~TO_INCLUDED : flags | FROM_EXCLUDED;
            from = isReverse ? from : last;
            to = isReverse ? last : to;
        }
        return isEnded;
    }

    private boolean fetchInTransaction(int items, Deque<byte[][]> fetched) {
        MemorySegment range = range(Scratch.begin());
        Native.Shown shown = Native.Shown.begin(items);
        int status = Native.TRANSACTION_SCAN.on(transaction.handle().number(), tree.number(), range, Native.SHOW_ITEM, MemorySegment.NULL);
        Reference.reachabilityFence(transaction);
        tree.check(status, transaction.handle());
        shown.verify();
        for (int at = 0; at < shown.parts.size(); at += 2) {
            fetched.add(new byte[][] {shown.parts.get(at), shown.parts.get(at + 1)});
        }
        return shown.parts.size() < 2 * items;
    }

    private int open(Scratch scratch, MemorySegment iterator) {
        if (prefix != null && from == null && to == null) {
            MemorySegment bytes = scratch.put(prefix);
            return Native.ITER_OPEN_PREFIX.on(tree.number(), bytes, bytes.byteSize(), iterator);
        }
        MemorySegment range = range(scratch);
        return snapshot == null ? Native.ITER_OPEN.on(tree.number(), range, iterator)
            : Native.SNAPSHOT_ITER.on(snapshot.handle().number(), tree.number(), range, iterator);
    }

    private boolean fetchByIterator(int items, Deque<byte[][]> fetched) {
        Scratch scratch = Scratch.begin();
        MemorySegment number = scratch.zeros(8);
        Handle[] others = snapshot == null ? new Handle[0] : new Handle[] {snapshot.handle()};
        tree.check(open(scratch, number), others);
        long iterator = number.get(ValueLayout.JAVA_LONG, 0);
        try {
            return fetchFrom(iterator, items, fetched, scratch.zeros(32));
        } finally {
            Native.ITER_CLOSE.on(iterator);
            Reference.reachabilityFence(snapshot);
        }
    }

    private boolean fetchFrom(long iterator, int items, Deque<byte[][]> fetched, MemorySegment words) {
        long bytes = 0;
        while (fetched.size() < items && bytes < CHUNK_BYTES) {
            int status = Native.next(iterator, isReverse, words);
            if (status == Native.ABSENT) {
                return true;
            }
            tree.check(status);
            byte[] key = Native.copy(words.get(ValueLayout.ADDRESS, 0), words.get(ValueLayout.JAVA_LONG, 8));
            if (prefix != null && !Arrays.equals(prefix, 0, prefix.length, key, 0, Math.min(prefix.length, key.length))) {
                return true;
            }
            fetched.add(new byte[][] {key, Native.copy(words.get(ValueLayout.ADDRESS, 16), words.get(ValueLayout.JAVA_LONG, 24))});
            bytes += key.length + words.get(ValueLayout.JAVA_LONG, 24);
        }
        return false;
    }

    /** An iterator, with the range that it has not fetched yet. */
    private final class Items implements Iterator<Map.Entry<K, V>> {
        private final Scan<K, V> rest;
        private final Deque<byte[][]> fetched = new ArrayDeque<>();
        private int chunk = CHUNK_FIRST;
        private boolean isEnded;
        private K last;

        Items(Scan<K, V> rest) {
            this.rest = rest;
        }

        @Override
        public boolean hasNext() {
            if (rest.limit == 0) {
                return false;
            }
            if (fetched.isEmpty() && !isEnded) {
                isEnded = rest.fetch((int) Math.min(chunk, rest.limit), fetched);
                chunk = Math.min(2 * chunk, CHUNK_MAX);
            }
            return !fetched.isEmpty();
        }

        @Override
        public Map.Entry<K, V> next() {
            if (!hasNext()) {
                throw new NoSuchElementException();
            }
            byte[][] item = fetched.remove();
            rest.limit--;
            last = tree.keys().decode(item[0]);
            return new SimpleImmutableEntry<>(last, tree.values().decode(item[1]));
        }

        /** Removes the last key from the tree, or, of a transaction, in it. */
        @Override
        public void remove() {
            if (last == null || snapshot != null) {
                throw new IllegalStateException("there is no item to remove");
            }
            if (transaction == null) {
                tree.remove(last);
            } else {
                transaction.remove(tree, last);
            }
            last = null;
        }
    }
}
