package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentNavigableMap;

/**
 * A tree in a pool: an ordered map, for any number of threads. Every write of one key is atomic, and durable when it
 * returns. No key or value is null: null as a result means an absent key.
 *
 * @param <K> the type of keys
 * @param <V> the type of values
 */
public final class Tree<K, V> implements AutoCloseable {
    /**
     * The outcome of {@link Tree#compareAndSwap}.
     *
     * @param swapped whether the key was as expected, and was changed
     * @param found otherwise its value, or nothing if it was absent
     * @param <V> the type of values
     */
    public record Swap<V>(boolean swapped, Optional<V> found) {
    }

    /**
     * The size of a tree.
     *
     * @param design the design
     * @param items the number of items, exact while no thread writes
     * @param leaves the number of leaves
     * @param poolBytes bytes of the pool, in whole chunks
     * @param memoryBytes bytes of memory
     */
    public record Stats(String design, long items, long leaves, long poolBytes, long memoryBytes) {
    }

    private static final long INFO_BYTES = 256;
    private static final int VALUE_BYTES = 512;

    private final Pool pool;
    private final String name;
    private final Kind<K> keys;
    private final Kind<V> values;
    private final Handle handle;
    private final boolean isWords;

    Tree(Pool pool, String name, Kind<K> keys, Kind<V> values, Scratch scratch, Pool.Opening opening) {
        this(pool, name, keys, values, keys.equals(Kind.U64) && values.equals(Kind.U64), scratch, opening);
    }

    /** Opens a handle that shows only values that have not expired. */
    static <K, V> Tree<K, V> live(Tree<K, ?> of, Kind<V> values) {
        return new Tree<>(of.pool, of.name, of.keys, values, false, Scratch.begin(), to -> Native.TREE_EXPIRING.on(of.number(), to));
    }

    private Tree(Pool pool, String name, Kind<K> keys, Kind<V> values, boolean isWords, Scratch scratch, Pool.Opening opening) {
        this.pool = pool;
        this.name = name;
        this.keys = keys;
        this.values = values;
        this.isWords = isWords;
        handle = pool.open(scratch, Native.TREE_CLOSE, this, opening);
    }

    Kind<K> keys() {
        return keys;
    }

    Kind<V> values() {
        return values;
    }

    long number() {
        return handle.number();
    }

    Handle handle() {
        return handle;
    }

    Pool pool() {
        return pool;
    }

    /** Throws the error of a call on this tree and others, if there is one. */
    void check(int status, Handle... others) {
        Reference.reachabilityFence(this);
        if (status != Native.OK) {
            throw error(status, others);
        }
    }

    BristleconeException error(int status, Handle... others) {
        BristleconeException error = Handle.error(status, others);
        return error.status() == Status.USAGE && handle.isClosed() ? BristleconeException.closed() : error;
    }

    static void commit(Native.Call call, Handle handle) {
        int status = call.on(handle.number());
        if (status == Native.OK) {
            handle.forget();
            return;
        }
        BristleconeException error = Handle.error(status, handle);
        // These leave the handle open.
        if (error.status() != Status.IN_USE && error.status() != Status.FORKED) {
            handle.forget();
        }
        throw error;
    }

    /**
     * Returns the name by which the tree was opened.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Returns the kind of keys.
     *
     * @return the kind
     */
    public Kind<K> keyKind() {
        return keys;
    }

    /**
     * Returns the kind of values.
     *
     * @return the kind
     */
    public Kind<V> valueKind() {
        return values;
    }

    /**
     * Returns the value of a key.
     *
     * @param key the key
     * @return the value, or null if the key is absent
     */
    public V get(K key) {
        if (isWords) {
            return getWord(key);
        }
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(keys.encode(key));
        MemorySegment length = scratch.room(8);
        MemorySegment to = scratch.room(VALUE_BYTES);
        int status = Native.get(number(), bytes, to, length);
        if (status == Native.TOO_SMALL) {
            to = scratch.room(length.get(ValueLayout.JAVA_LONG, 0));
            status = Native.get(number(), bytes, to, length);
        }
        return status == Native.TOO_SMALL ? get(key) : value(status, to, length);
    }

    @SuppressWarnings("unchecked")
    private V getWord(K key) {
        MemorySegment to = Scratch.begin().room(8);
        int status = Native.getWord(number(), wordOf(keys, key), to);
        if (status == Native.ABSENT) {
            return null;
        }
        check(status);
        return (V) (Long) to.get(ValueLayout.JAVA_LONG, 0);
    }

    private static <T> long wordOf(Kind<T> kind, T word) {
        return word instanceof Long it ? it : Kind.decodeWord(kind.encode(word));
    }

    /** Returns the value that a lookup has copied. */
    private V value(int status, MemorySegment to, MemorySegment length, Handle... others) {
        if (status == Native.ABSENT) {
            return null;
        }
        check(status, others);
        return values.decode(to.asSlice(0, length.get(ValueLayout.JAVA_LONG, 0)).toArray(ValueLayout.JAVA_BYTE));
    }

    /** Looks a key up in a snapshot or in a transaction. */
    V get(Native.Call call, Handle of, K key) {
        byte[] encoded = keys.encode(key);
        for (long capacity = VALUE_BYTES;;) {
            Scratch scratch = Scratch.begin();
            MemorySegment bytes = scratch.put(encoded);
            MemorySegment length = scratch.room(8);
            MemorySegment to = scratch.room(capacity);
            int status = call.on(of.number(), number(), bytes, bytes.byteSize(), to, capacity, length);
            if (status != Native.TOO_SMALL) {
                return value(status, to, length, of);
            }
            capacity = length.get(ValueLayout.JAVA_LONG, 0);
        }
    }

    /**
     * Returns whether a key exists.
     *
     * @param key the key
     * @return whether it exists
     */
    public boolean contains(K key) {
        MemorySegment bytes = Scratch.begin().put(keys.encode(key));
        int status = Native.CONTAINS.on(number(), bytes, bytes.byteSize());
        if (status == Native.ABSENT) {
            return false;
        }
        check(status);
        return true;
    }

    /**
     * Writes a key's value, whether or not the key exists.
     *
     * @param key the key
     * @param value the value
     */
    public void put(K key, V value) {
        if (isWords) {
            check(Native.putWord(number(), wordOf(keys, key), wordOf(values, value)));
            return;
        }
        Scratch scratch = Scratch.begin();
        MemorySegment keyBytes = scratch.put(keys.encode(key));
        MemorySegment valueBytes = scratch.put(values.encode(value));
        check(Native.put(number(), keyBytes, valueBytes));
    }

    /**
     * Writes a key's value, whether or not the key exists.
     *
     * @param key the key
     * @param value the value
     * @return the previous value, or null
     */
    public V exchange(K key, V value) {
        return write(Native.EXCHANGE, Native.OK, key, value);
    }

    /**
     * Inserts an absent key.
     *
     * @param key the key
     * @param value the value
     * @return null, or the value of the key, if it exists: then nothing has changed
     */
    public V insert(K key, V value) {
        return write(Native.INSERT, Native.PRESENT, key, value);
    }

    /**
     * Replaces the value of an existing key.
     *
     * @param key the key
     * @param value the value
     * @return the previous value, or null if the key is absent: then nothing has changed
     */
    public V update(K key, V value) {
        return write(Native.UPDATE, Native.ABSENT, key, value);
    }

    private V write(Native.Call call, int outcome, K key, V value) {
        Scratch scratch = Scratch.begin();
        MemorySegment keyBytes = scratch.put(keys.encode(key));
        MemorySegment valueBytes = scratch.put(values.encode(value));
        Native.Shown shown = Native.Shown.begin(1);
        int status = call.on(number(), keyBytes, keyBytes.byteSize(), valueBytes, valueBytes.byteSize(), Native.SHOW, MemorySegment.NULL);
        return shown(shown, status, outcome);
    }

    /** Returns the value that a write has shown. */
    V shown(Native.Shown shown, int status, int outcome) {
        if (status != outcome) {
            check(status);
        }
        shown.verify();
        Reference.reachabilityFence(this);
        return shown.parts.isEmpty() ? null : values.decode(shown.parts.getFirst());
    }

    /**
     * Removes a key.
     *
     * @param key the key
     * @return its value, or null if it was absent
     */
    public V remove(K key) {
        MemorySegment bytes = Scratch.begin().put(keys.encode(key));
        Native.Shown shown = Native.Shown.begin(1);
        return shown(shown, Native.REMOVE.on(number(), bytes, bytes.byteSize(), Native.SHOW, MemorySegment.NULL), Native.ABSENT);
    }

    /**
     * Changes a key from an expected value to another one in one step; null means an absent key. So it inserts, replaces,
     * removes, or only compares.
     *
     * @param key the key
     * @param expected the expected value, or null
     * @param wanted the new value, or null
     * @return the outcome
     */
    public Swap<V> compareAndSwap(K key, V expected, V wanted) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(keys.encode(key));
        MemorySegment from = scratch.putOptional(expected == null ? null : values.encode(expected));
        MemorySegment to = scratch.putOptional(wanted == null ? null : values.encode(wanted));
        Native.Shown shown = Native.Shown.begin(1);
        int status = Native.SWAP.on(number(), bytes, bytes.byteSize(), from, from.byteSize(), to, to.byteSize(), Native.SHOW, MemorySegment.NULL);
        V found = shown(shown, status, Native.DIFFERS);
        return new Swap<>(status == Native.OK, Optional.ofNullable(found));
    }

    /** Copies keys or values to an array of the C library. */
    private static <T> MemorySegment many(Scratch scratch, Kind<T> kind, Collection<? extends T> data) {
        List<MemorySegment> parts = data.stream().map(it -> scratch.put(kind.encode(it))).toList();
        MemorySegment to = scratch.room(16L * Math.max(parts.size(), 1));
        for (int at = 0; at < parts.size(); at++) {
            to.set(ValueLayout.ADDRESS, 16L * at, parts.get(at));
            to.set(ValueLayout.JAVA_LONG, 16L * at + 8, parts.get(at).byteSize());
        }
        return to;
    }

    /** Throws the error of a call for many keys, which says how many were done. */
    private void checkMany(int status, MemorySegment done) {
        Reference.reachabilityFence(this);
        if (status != Native.OK) {
            BristleconeException error = error(status);
            throw new BristleconeException(error.status(), error.getMessage(), done.get(ValueLayout.JAVA_LONG, 0));
        }
    }

    /**
     * Looks up keys. Each lookup reads at its own time.
     *
     * @param of the keys
     * @return the value of each, or null
     */
    public List<V> getMany(Collection<? extends K> of) {
        Scratch scratch = Scratch.begin();
        MemorySegment parts = many(scratch, keys, of);
        Native.Shown shown = Native.Shown.begin(of.size());
        check(Native.GET_MANY.on(number(), parts, (long) of.size(), Native.SHOW_AT, MemorySegment.NULL));
        shown.verify();
        List<V> found = new ArrayList<>(Collections.nCopies(of.size(), null));
        for (int at = 0; at < shown.parts.size(); at++) {
            found.set(shown.indexes.get(at).intValue(), values.decode(shown.parts.get(at)));
        }
        return found;
    }

    /**
     * Writes items one after the other. Each write is atomic, and durable. An error says how many items were written:
     * {@link BristleconeException#done()}.
     *
     * @param items the items, in the order of the map
     */
    public void putMany(Map<? extends K, ? extends V> items) {
        putMany(List.copyOf(items.keySet()), List.copyOf(items.values()));
    }

    /**
     * Writes items one after the other: see {@link #putMany(Map)}.
     *
     * @param of the keys
     * @param to the value of each
     */
    public void putMany(List<? extends K> of, List<? extends V> to) {
        if (of.size() != to.size()) {
            throw BristleconeException.usage("the numbers of keys and of values differ");
        }
        Scratch scratch = Scratch.begin();
        MemorySegment keyParts = many(scratch, keys, of);
        MemorySegment valueParts = many(scratch, values, to);
        MemorySegment done = scratch.zeros(8);
        checkMany(Native.PUT_MANY.on(number(), keyParts, valueParts, (long) of.size(), done), done);
    }

    /**
     * Removes keys one after the other; absent ones are skipped. Each removal is atomic, and durable. An error says how many
     * keys were processed: {@link BristleconeException#done()}.
     *
     * @param of the keys
     */
    public void removeMany(Collection<? extends K> of) {
        Scratch scratch = Scratch.begin();
        MemorySegment parts = many(scratch, keys, of);
        MemorySegment done = scratch.zeros(8);
        checkMany(Native.REMOVE_MANY.on(number(), parts, (long) of.size(), done), done);
    }

    /**
     * Returns the items.
     *
     * @return all items, in ascending order
     */
    public Scan<K, V> scan() {
        return new Scan<>(this, null, null);
    }

    /**
     * Returns the items whose keys begin with this one, of a tree whose keys are strings, bytes or arrays.
     *
     * @param prefix the prefix
     * @return the items
     */
    public Scan<K, V> prefix(K prefix) {
        return scan().ofPrefix(prefix);
    }

    /**
     * Returns a map that reads and writes this tree. Its keys and values are not null, and it is closed with the tree.
     *
     * @return the map
     */
    public ConcurrentNavigableMap<K, V> asMap() {
        return new TreeView<>(this);
    }

    /**
     * Counts the items; exact while no thread writes.
     *
     * @return their number
     */
    public long size() {
        MemorySegment to = Scratch.begin().zeros(8);
        check(Native.TREE_LEN.on(number(), to));
        return to.get(ValueLayout.JAVA_LONG, 0);
    }

    /**
     * Returns the size of the tree.
     *
     * @return the size
     */
    public Stats stats() {
        MemorySegment to = info();
        return new Stats(to.asSlice(136, 64).getString(0), to.get(ValueLayout.JAVA_LONG, 216), to.get(ValueLayout.JAVA_LONG, 224),
            to.get(ValueLayout.JAVA_LONG, 232), to.get(ValueLayout.JAVA_LONG, 240));
    }

    private MemorySegment info() {
        MemorySegment to = Scratch.begin().zeros(INFO_BYTES);
        to.set(ValueLayout.JAVA_LONG, 0, INFO_BYTES);
        check(Native.TREE_INFO.on(number(), to));
        return to;
    }

    /** Returns how many milliseconds a value lives if its write names no expiry, or 0. */
    long expireAfterMillis() {
        return info().get(ValueLayout.JAVA_LONG, 248);
    }

    /**
     * Verifies everything that is reachable from the tree. Exact while no thread writes.
     *
     * @return the damage; normally none
     */
    public List<Pool.Issue> check() {
        List<Pool.Issue> found = Pool.issues(show -> Native.TREE_CHECK.on(number(), show, MemorySegment.NULL), this::error);
        Reference.reachabilityFence(this);
        return found;
    }

    /** Closes the handle; the data stays. Again, it does nothing. */
    @Override
    public void close() {
        handle.close();
        Reference.reachabilityFence(pool);
    }
}
