package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.ref.Reference;

/**
 * All trees of a pool as of one instant, for any number of threads. What changes meanwhile is kept in memory: close it soon.
 */
public final class Snapshot implements AutoCloseable {
    private final Pool pool;
    private final Handle handle;

    Snapshot(Pool pool, long maxBytes) {
        this.pool = pool;
        handle = pool.open(Scratch.begin(), Native.SNAPSHOT_CLOSE, this, to -> Native.SNAPSHOT_OPEN.on(pool.number(), maxBytes, to));
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
        V value = tree.get(Native.SNAPSHOT_GET, handle, key);
        Reference.reachabilityFence(this);
        return value;
    }

    /**
     * Returns the items of a tree.
     *
     * @param tree the tree
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return the items
     */
    public <K, V> Scan<K, V> scan(Tree<K, V> tree) {
        return new Scan<>(tree, this, null);
    }

    /**
     * Returns the approximate number of bytes of memory that are kept for the snapshot.
     *
     * @return the number of bytes
     */
    public long bytes() {
        MemorySegment to = Scratch.begin().zeros(8);
        int status = Native.SNAPSHOT_BYTES.on(handle.number(), to);
        Reference.reachabilityFence(this);
        if (status != Native.OK) {
            throw Handle.error(status, handle);
        }
        return to.get(ValueLayout.JAVA_LONG, 0);
    }

    @Override
    public void close() {
        handle.close();
        Reference.reachabilityFence(pool);
    }
}
