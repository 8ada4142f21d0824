package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;

/**
 * A transaction: all trees of a pool as of one instant, together with its own writes. Only one thread at a time may use it;
 * a second one gets {@link Status#IN_USE}. What others change meanwhile is kept in memory: end it soon.
 */
public final class Transaction implements AutoCloseable {
    private final Pool pool;
    private final Handle handle;

    Transaction(Pool pool) {
        this.pool = pool;
        handle = pool.open(Scratch.begin(), Native.TRANSACTION_ROLLBACK, this, to -> Native.TRANSACTION_BEGIN.on(pool.number(), to));
    }

    Handle handle() {
        return handle;
    }

    /**
     * Returns the value of a key.
     *
     * @param tree the tree
     * @param key the key
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return the value, or null if the key is absent
     */
    public <K, V> V get(Tree<K, V> tree, K key) {
        V value = tree.get(Native.TRANSACTION_GET, handle, key);
        Reference.reachabilityFence(this);
        return value;
    }

    /**
     * Writes a key's value, whether or not the key exists.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @param <K> the type of keys
     * @param <V> the type of values
     */
    public <K, V> void put(Tree<K, V> tree, K key, V value) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(tree.keys().encode(key));
        MemorySegment given = scratch.put(tree.values().encode(value));
        tree.check(Native.TRANSACTION_PUT.on(handle.number(), tree.number(), bytes, bytes.byteSize(), given, given.byteSize()), handle);
        Reference.reachabilityFence(this);
    }

    /**
     * Removes a key, if it exists.
     *
     * @param tree the tree
     * @param key the key
     * @param <K> the type of keys
     */
    public <K> void remove(Tree<K, ?> tree, K key) {
        MemorySegment bytes = Scratch.begin().put(tree.keys().encode(key));
        tree.check(Native.TRANSACTION_REMOVE.on(handle.number(), tree.number(), bytes, bytes.byteSize()), handle);
        Reference.reachabilityFence(this);
    }

    /**
     * Returns the items of a tree, in ascending order. The keys that an iteration has passed, or fetched in advance, count
     * as read.
     *
     * @param tree the tree
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return the items
     */
    public <K, V> Scan<K, V> scan(Tree<K, V> tree) {
        return new Scan<>(tree, null, this);
    }

    /**
     * Applies the changes atomically, if nothing that the transaction read has changed meanwhile, and ends it. Otherwise it
     * throws with {@link Status#CONFLICT}.
     */
    public void commit() {
        Tree.commit(Native.TRANSACTION_COMMIT, handle);
        Reference.reachabilityFence(pool);
    }

    /** Ends the transaction. Without a commit nothing changes. */
    @Override
    public void close() {
        handle.close();
    }
}
