package bristlecone;

import java.lang.ref.Cleaner;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;

/** A handle of the C library. It is closed when its owner is, when its pool is, or when its owner is unreachable. */
final class Handle {
    private static final Cleaner CLEANER = Cleaner.create();
    /** How long closing waits for calls of other threads. */
    private static final long WAIT_NANOS = TimeUnit.SECONDS.toNanos(10);

    /** The open handles of a pool, and the pool. */
    static final class Members {
        private final ConcurrentHashMap<Long, Native.Call> open = new ConcurrentHashMap<>();
        private volatile boolean isClosed;
        private long pool;

        Members(long pool) {
            this.pool = pool;
        }

        boolean isClosed() {
            return isClosed;
        }

        /** Notes a new handle. In a pool that was closed meanwhile the handle is closed. */
        void add(long handle, Native.Call close) {
            open.put(handle, close);
            if (isClosed) {
                end(handle);
                throw BristleconeException.closed();
            }
        }

        /** Closes a handle, unless it was closed. */
        void end(long handle) {
            Native.Call close = open.remove(handle);
            if (close != null) {
                Handle.close(close, handle);
            }
        }

        /** Closes everything that is open, and then the pool. After an error it may be called again. */
        synchronized void endAll() {
            isClosed = true;
            open.keySet().forEach(this::end);
            if (pool != 0) {
                Handle.close(Native.POOL_CLOSE, pool);
                pool = 0;
            }
        }
    }

    private final Members members;
    private final long number;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    Handle(Members members, long number, Native.Call close, Object owner) {
        this.members = members;
        this.number = number;
        members.add(number, close);
        CLEANER.register(owner, () -> {
            try {
                members.end(number);
            } catch (BristleconeException busy) {
                // Another thread is in a call on it; closing the pool closes it.
                members.open.put(number, close);
            }
        });
    }

    /** Closes a pool when its owner is unreachable. */
    static void cleanPool(Object owner, Members members) {
        CLEANER.register(owner, members::endAll);
    }

    /** Closes a handle, after the calls of other threads on it. */
    private static void close(Native.Call close, long handle) {
        long begun = System.nanoTime();
        if (close == Native.CHANGES_CLOSE) {
            // A thread that waits on the stream returns.
            Native.CHANGES_STOP.on(handle);
        }
        while (true) {
            int status = close.on(handle);
            if (status == Native.OK) {
                return;
            }
            if (Status.of(status) != Status.IN_USE || System.nanoTime() - begun > WAIT_NANOS) {
                throw Native.error(status);
            }
            Thread.onSpinWait();
        }
    }

    /** Returns the number of an open handle. */
    long number() {
        if (isClosed.get() || members.isClosed()) {
            throw BristleconeException.closed();
        }
        return number;
    }

    boolean isClosed() {
        return isClosed.get() || members.isClosed();
    }

    void close() {
        if (!isClosed.getAndSet(true)) {
            members.end(number);
        }
    }

    /** Forgets a handle that the library has closed. */
    void forget() {
        isClosed.set(true);
        members.open.remove(number);
    }

    /** Returns the error of a call on this handle and others. */
    static BristleconeException error(int status, Handle... used) {
        BristleconeException error = Native.error(status);
        for (Handle handle : used) {
            if (error.status() == Status.USAGE && handle.isClosed()) {
                return BristleconeException.closed();
            }
        }
        return error;
    }
}
