package bristlecone;

/** The reason of a {@link BristleconeException}. */
public enum Status {
    /** The system returned an error, or a check found damage. */
    FAILED(1),
    /** An argument is invalid, or the tree has other kinds. */
    USAGE(2),
    /** Another process has the pool open, the tree is open, or another thread uses the batch or transaction. */
    IN_USE(3),
    /** The pool, the tree or the journal does not exist. */
    ABSENT(4),
    /** The file is not a pool, is corrupted, or was written by a newer version. */
    CORRUPTED(5),
    /** The pool or the file system is full. */
    FULL(6),
    /** The handle was opened by another process, of which this one is a child. */
    FORKED(34),
    /** The pool is open for reading only. */
    READ_ONLY(35),
    /** The medium failed to make data durable, and the outcome is unknown: reopen the pool. */
    DURABILITY_LOST(36),
    /** The library has a bug. The pool loses no acknowledged data. */
    BUG(38),
    /** A concurrent write changed data that a transaction read, or a condition of a batch does not hold. */
    CONFLICT(39),
    /** A snapshot exceeded its limit, or the tree was cleared since. */
    SNAPSHOT_TOO_OLD(40),
    /** No process writes to the pool that is followed. */
    NO_WRITER(41),
    /** The journal does not keep the requested commits any more, or the cursor held back too much and was dropped. */
    PRUNED(42),
    /** The handle, or its pool, was closed. */
    CLOSED(-1);

    private final int code;

    Status(int code) {
        this.code = code;
    }

    static Status of(int code) {
        for (Status status : values()) {
            if (status.code == code) {
                return status;
            }
        }
        return BUG;
    }
}
