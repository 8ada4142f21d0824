package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Optional;

/**
 * A tree whose values expire, for any number of threads: for its operations, an entry whose time has come is absent.
 *
 * <pre>{@code
 * Tree<String, List<Object>> entries = pool.tree("sessions", Kind.STR, Kind.expiring(Kind.U64));
 * ExpiringTree<String, Long> sessions = new ExpiringTree<>(entries, Kind.U64);
 * sessions.put("ada", 7L, Expiry.after(Duration.ofHours(1)));
 * }</pre>
 *
 * <p>Batches, transactions, snapshots, calls of many keys and removals of ranges use the tree of entries, whose values have
 * their times. A write without an expiry has {@link Expiry#DEFAULT}.
 *
 * @param <K> the type of keys
 * @param <V> the type of values
 */
public final class ExpiringTree<K, V> implements AutoCloseable {
    /**
     * What a pass of {@link ExpiringTree#removeExpired} did.
     *
     * @param examined the number of entries that it read
     * @param removed the number of expired entries that it removed
     * @param complete whether it reached the end of the tree; the next pass begins at the smallest key
     */
    public record Removal(long examined, long removed, boolean complete) {
    }

    private final Tree<K, V> live;

    /**
     * Opens another handle to a tree, which is closed on its own.
     *
     * @param entries the tree, with values of the kind {@code Expiring<V>}
     * @param values the kind of its values, without their times
     */
    public ExpiringTree(Tree<K, ?> entries, Kind<V> values) {
        String expected = Kind.expiring(values).name();
        if (!entries.valueKind().name().equals(expected)) {
            throw BristleconeException.usage("the tree has " + entries.valueKind().name() + " values, not " + expected);
        }
        live = Tree.live(entries, values);
    }

    /**
     * Returns the kind of keys.
     *
     * @return the kind
     */
    public Kind<K> keyKind() {
        return live.keyKind();
    }

    /**
     * Returns the kind of values, without their times.
     *
     * @return the kind
     */
    public Kind<V> valueKind() {
        return live.valueKind();
    }

    /**
     * Returns how long a value lives if its write names no expiry.
     *
     * @return the time, or nothing: it does not expire
     */
    public Optional<Duration> expireAfter() {
        long millis = live.expireAfterMillis();
        return millis == 0 ? Optional.empty() : Optional.of(Duration.ofMillis(millis < 0 ? Long.MAX_VALUE : millis));
    }

    /**
     * Returns the value of a key.
     *
     * @param key the key
     * @return the value, or null if the key is absent
     */
    public V get(K key) {
        return live.get(key);
    }

    /**
     * Returns whether a key exists.
     *
     * @param key the key
     * @return whether it exists
     */
    public boolean contains(K key) {
        return live.contains(key);
    }

    /**
     * Writes a key's value with the expiry of the tree, whether or not the key exists.
     *
     * @param key the key
     * @param value the value
     */
    public void put(K key, V value) {
        put(key, value, Expiry.DEFAULT);
    }

    /**
     * Writes a key's value and its expiry, whether or not the key exists.
     *
     * @param key the key
     * @param value the value
     * @param at its expiry
     */
    public void put(K key, V value, Expiry at) {
        Scratch scratch = Scratch.begin();
        MemorySegment keyBytes = scratch.put(live.keys().encode(key));
        MemorySegment valueBytes = scratch.put(live.values().encode(value));
        live.check(Native.EXPIRING_PUT.on(live.number(), keyBytes, keyBytes.byteSize(), valueBytes, valueBytes.byteSize(), at.millis()));
    }

    /**
     * Writes a key's value and its expiry, whether or not the key exists.
     *
     * @param key the key
     * @param value the value
     * @param at its expiry
     * @return the previous value, or null
     */
    public V exchange(K key, V value, Expiry at) {
        return write(Native.EXPIRING_EXCHANGE, Native.OK, key, value, at);
    }

    /**
     * Inserts an absent key.
     *
     * @param key the key
     * @param value the value
     * @param at its expiry
     * @return null, or the value of the key, if it exists: then nothing has changed
     */
    public V insert(K key, V value, Expiry at) {
        return write(Native.EXPIRING_INSERT, Native.PRESENT, key, value, at);
    }

    /**
     * Replaces the value of an existing key and its expiry.
     *
     * @param key the key
     * @param value the value
     * @param at its expiry
     * @return the previous value, or null if the key is absent: then nothing has changed
     */
    public V update(K key, V value, Expiry at) {
        return write(Native.EXPIRING_UPDATE, Native.ABSENT, key, value, at);
    }

    private V write(Native.Call call, int outcome, K key, V value, Expiry at) {
        Scratch scratch = Scratch.begin();
        MemorySegment keyBytes = scratch.put(live.keys().encode(key));
        MemorySegment valueBytes = scratch.put(live.values().encode(value));
        Native.Shown shown = Native.Shown.begin(1);
        int status = call.on(live.number(), keyBytes, keyBytes.byteSize(), valueBytes, valueBytes.byteSize(), at.millis(), Native.SHOW,
            MemorySegment.NULL);
        return live.shown(shown, status, outcome);
    }

    /**
     * Removes a key.
     *
     * @param key the key
     * @return its value, or null if it was absent
     */
    public V remove(K key) {
        return live.remove(key);
    }

    /**
     * Changes a key from an expected value to another one with its expiry in one step; null means an absent key. The expiry
     * that the key had does not count.
     *
     * @param key the key
     * @param expected the expected value, or null
     * @param wanted the new value, or null
     * @param at its expiry
     * @return the outcome
     */
    public Tree.Swap<V> compareAndSwap(K key, V expected, V wanted, Expiry at) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(live.keys().encode(key));
        MemorySegment from = scratch.putOptional(expected == null ? null : live.values().encode(expected));
        MemorySegment to = scratch.putOptional(wanted == null ? null : live.values().encode(wanted));
        Native.Shown shown = Native.Shown.begin(1);
        int status = Native.EXPIRING_SWAP.on(live.number(), bytes, bytes.byteSize(), from, from.byteSize(), to, to.byteSize(), at.millis(),
            Native.SHOW, MemorySegment.NULL);
        V found = live.shown(shown, status, Native.DIFFERS);
        return new Tree.Swap<>(status == Native.OK, Optional.ofNullable(found));
    }

    /**
     * Returns when a key expires.
     *
     * @param key the key
     * @return its expiry, or nothing if it is absent
     */
    public Optional<Expiry> expiry(K key) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(live.keys().encode(key));
        MemorySegment to = scratch.zeros(8);
        return timed(Native.EXPIRY.on(live.number(), bytes, bytes.byteSize(), to), to);
    }

    /**
     * Sets when a key expires, and keeps its value.
     *
     * @param key the key
     * @param at its expiry: {@link Expiry#NEVER} makes it permanent, and {@link Expiry#DEFAULT} renews it
     * @return the previous expiry, or nothing if the key is absent
     */
    public Optional<Expiry> setExpiry(K key, Expiry at) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(live.keys().encode(key));
        MemorySegment to = scratch.zeros(8);
        return timed(Native.SET_EXPIRY.on(live.number(), bytes, bytes.byteSize(), at.millis(), to), to);
    }

    private Optional<Expiry> timed(int status, MemorySegment to) {
        if (status == Native.ABSENT) {
            return Optional.empty();
        }
        live.check(status);
        return Optional.of(new Expiry(to.get(ValueLayout.JAVA_LONG, 0)));
    }

    /**
     * Reads entries and removes the expired ones among them; the next call on this handle continues behind them. A renewed
     * entry is never removed.
     *
     * @param budget how many entries to read
     * @return what was done
     */
    public Removal removeExpired(long budget) {
        if (budget < 0) {
            throw BristleconeException.usage("a negative number of entries");
        }
        MemorySegment to = Scratch.begin().zeros(24);
        live.check(Native.REMOVE_EXPIRED.on(live.number(), budget, to.asSlice(0, 8), to.asSlice(8, 8), to.asSlice(16, 4)));
        return new Removal(to.get(ValueLayout.JAVA_LONG, 0), to.get(ValueLayout.JAVA_LONG, 8), to.get(ValueLayout.JAVA_INT, 16) == 1);
    }

    /**
     * Returns the items.
     *
     * @return all items that have not expired, in ascending order
     */
    public Scan<K, V> scan() {
        return live.scan();
    }

    /**
     * Returns the items whose keys begin with this one, of a tree whose keys are strings, bytes or arrays.
     *
     * @param prefix the prefix
     * @return the items
     */
    public Scan<K, V> prefix(K prefix) {
        return live.prefix(prefix);
    }

    /**
     * Counts the entries, including expired ones that were not removed; exact while no thread writes.
     *
     * @return their number
     */
    public long size() {
        return live.size();
    }

    /** Returns the handle that shows only live values. */
    Tree<K, V> live() {
        return live;
    }

    /** Closes the handle; the data stays. Again, it does nothing. */
    @Override
    public void close() {
        live.close();
    }
}
