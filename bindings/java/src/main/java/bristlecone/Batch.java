package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.ref.Reference;

/**
 * Changes of any trees of a pool, which {@link #commit()} applies atomically. Only one thread at a time may use it; a second
 * one gets {@link Status#IN_USE}.
 */
public final class Batch implements AutoCloseable {
    private final Pool pool;
    private final Handle handle;

    Batch(Pool pool) {
        this.pool = pool;
        handle = pool.open(Scratch.begin(), Native.BATCH_DISCARD, this, to -> Native.BATCH_BEGIN.on(pool.number(), to));
    }

    /**
     * Adds a write of a key's value, whether or not the key exists. Of several changes of a key the last one counts.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return this batch
     */
    public <K, V> Batch put(Tree<K, V> tree, K key, V value) {
        return change(Native.BATCH_PUT, tree, key, tree.values().encode(value));
    }

    /**
     * Adds the removal of a key, if it exists.
     *
     * @param tree the tree
     * @param key the key
     * @param <K> the type of keys
     * @return this batch
     */
    public <K> Batch remove(Tree<K, ?> tree, K key) {
        MemorySegment bytes = Scratch.begin().put(tree.keys().encode(key));
        tree.check(Native.BATCH_REMOVE.on(handle.number(), tree.number(), bytes, bytes.byteSize()), handle);
        Reference.reachabilityFence(this);
        return this;
    }

    /**
     * Adds the condition that a key has a value before the batch.
     *
     * @param tree the tree
     * @param key the key
     * @param value the value
     * @param <K> the type of keys
     * @param <V> the type of values
     * @return this batch
     */
    public <K, V> Batch expect(Tree<K, V> tree, K key, V value) {
        return change(Native.BATCH_EXPECT, tree, key, tree.values().encode(value));
    }

    /**
     * Adds the condition that a key is absent before the batch.
     *
     * @param tree the tree
     * @param key the key
     * @param <K> the type of keys
     * @return this batch
     */
    public <K> Batch expectAbsent(Tree<K, ?> tree, K key) {
        return change(Native.BATCH_EXPECT, tree, key, null);
    }

    private <K> Batch change(Native.Call call, Tree<K, ?> tree, K key, byte[] value) {
        Scratch scratch = Scratch.begin();
        MemorySegment bytes = scratch.put(tree.keys().encode(key));
        MemorySegment given = scratch.putOptional(value);
        tree.check(call.on(handle.number(), tree.number(), bytes, bytes.byteSize(), given, given.byteSize()), handle);
        Reference.reachabilityFence(this);
        return this;
    }

    /**
     * Applies all changes atomically, if all conditions hold, and ends the batch. Otherwise it throws with
     * {@link Status#CONFLICT}.
     */
    public void commit() {
        Tree.commit(Native.BATCH_COMMIT, handle);
        Reference.reachabilityFence(pool);
    }

    /** Ends the batch. Without a commit nothing changes. */
    @Override
    public void close() {
        handle.close();
    }
}
