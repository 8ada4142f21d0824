package bristlecone;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Path;
import java.time.Duration;

/** Says how a pool is opened. New options open an existing pool for writing. */
public final class Options {
    /** Says where data must be to be durable. */
    public enum Domain {
        /** That of the medium. */
        DETECTED,
        /** Shared memory: writes survive the process. */
        PROCESS,
        /** Persistent memory behind caches that a power failure empties. */
        ADR,
        /** Persistent memory, caches included. */
        EADR,
        /** Any file: pages are synced. */
        MSYNC,
        /** An ordinary file with a journal. */
        JOURNAL
    }

    /** Says when a write to a pool with a journal returns. In all of them a killed process loses nothing. */
    public enum Durability {
        /** That of {@link #COMMIT}. */
        DEFAULT,
        /** Once the write is on disk. */
        COMMIT,
        /** Immediately; the write is on disk after the interval and one sync. */
        INTERVAL,
        /** Immediately; the write is on disk after {@link Pool#sync()} or {@link Pool#close()}. */
        MEMORY
    }

    private static final int CREATE = 1;
    private static final int CREATE_NEW = 2;
    private static final int READ = 4;
    private static final int LEAVE_SIGBUS = 8;
    private static final int FOLLOW = 16;
    private static final long STRUCT_BYTES = 56;

    /** The virtual machine has a handler of its own for SIGBUS. */
    private int flags = LEAVE_SIGBUS;
    private long maxBytes;
    private Domain domain = Domain.DETECTED;
    private int recoveryThreads;
    private Durability durability = Durability.DEFAULT;
    private Duration interval = Duration.ZERO;
    private Path journal;
    private long cursorLimit;

    /** Opens an existing pool for writing. */
    public Options() {
        // The fields have the defaults.
    }

    /**
     * Creates the pool if it does not exist.
     *
     * @return these options
     */
    public Options create() {
        flags |= CREATE;
        return this;
    }

    /**
     * Creates the pool, and fails if it exists.
     *
     * @return these options
     */
    public Options createNew() {
        flags |= CREATE_NEW;
        return this;
    }

    /**
     * Opens the pool for reading, beside other readers.
     *
     * @return these options
     */
    public Options readOnly() {
        flags |= READ;
        return this;
    }

    /**
     * Reads the pool while another process writes to it.
     *
     * @return these options
     */
    public Options follow() {
        flags |= FOLLOW;
        return this;
    }

    /**
     * Sets the maximum size. It raises a lower maximum of an existing pool.
     *
     * @param bytes the size in bytes
     * @return these options
     */
    public Options maxBytes(long bytes) {
        if (bytes <= 0) {
            throw BristleconeException.usage("a maximum of " + bytes + " bytes");
        }
        maxBytes = bytes;
        return this;
    }

    /**
     * Sets the domain.
     *
     * @param domain the domain
     * @return these options
     */
    public Options domain(Domain domain) {
        this.domain = domain;
        return this;
    }

    /**
     * Sets the number of threads that recover a tree; 0 is one per processor.
     *
     * @param threads the number
     * @return these options
     */
    public Options recoveryThreads(int threads) {
        if (threads < 0) {
            throw BristleconeException.usage("a negative number of threads");
        }
        recoveryThreads = threads;
        return this;
    }

    /**
     * Says when a write returns, in a pool with a journal.
     *
     * @param durability the durability
     * @return these options
     */
    public Options durability(Durability durability) {
        this.durability = durability;
        return this;
    }

    /**
     * Sets the time of {@link Durability#INTERVAL}.
     *
     * @param interval whole milliseconds
     * @return these options
     */
    public Options interval(Duration interval) {
        if (interval.isNegative() || interval.toNanosPart() % 1_000_000 != 0 || interval.toMillis() > Integer.MAX_VALUE) {
            throw BristleconeException.usage("the interval is not a number of whole milliseconds");
        }
        this.interval = interval;
        return this;
    }

    /**
     * Sets the folder of the journal.
     *
     * @param folder the folder; without this, the path of the pool, followed by {@code .journal}
     * @return these options
     */
    public Options journal(Path folder) {
        journal = folder;
        return this;
    }

    /**
     * Sets the maximum size of the files of the journal that are kept only for a cursor, before a checkpoint drops it.
     *
     * @param bytes the size in bytes; without this, 1 GiB
     * @return these options
     */
    public Options cursorLimit(long bytes) {
        if (bytes <= 0) {
            throw BristleconeException.usage("a limit of " + bytes + " bytes");
        }
        cursorLimit = bytes;
        return this;
    }

    boolean follows() {
        return (flags & FOLLOW) != 0;
    }

    /** Returns the struct of the C library. */
    MemorySegment to(Scratch scratch) {
        MemorySegment folder = scratch.putName(journal == null ? null : journal.toString());
        MemorySegment of = scratch.zeros(STRUCT_BYTES);
        of.set(ValueLayout.JAVA_LONG, 0, STRUCT_BYTES);
        of.set(ValueLayout.JAVA_INT, 8, flags);
        of.set(ValueLayout.JAVA_INT, 12, domain.ordinal());
        of.set(ValueLayout.JAVA_LONG, 16, maxBytes);
        of.set(ValueLayout.JAVA_LONG, 24, recoveryThreads);
        of.set(ValueLayout.JAVA_INT, 32, durability.ordinal());
        of.set(ValueLayout.JAVA_INT, 36, (int) interval.toMillis());
        of.set(ValueLayout.ADDRESS, 40, folder);
        of.set(ValueLayout.JAVA_LONG, 48, cursorLimit);
        return of;
    }
}
