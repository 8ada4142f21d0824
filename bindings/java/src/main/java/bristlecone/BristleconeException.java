package bristlecone;

/**
 * An error of the library. The operation has changed nothing, except with {@link Status#DURABILITY_LOST}, where the
 * outcome is unknown, and in calls for many keys, see {@link #done()}.
 */
public class BristleconeException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The reason. */
    private final Status status;
    /** The number of items that a call for many keys has processed. */
    private final long done;

    BristleconeException(Status status, String message) {
        this(status, message, 0);
    }

    BristleconeException(Status status, String message, long done) {
        super(message);
        this.status = status;
        this.done = done;
    }

    /**
     * Returns the reason.
     *
     * @return the reason
     */
    public Status status() {
        return status;
    }

    /**
     * Returns the number of items, from the first on, that a call for many keys has processed.
     *
     * @return the number of items
     */
    public long done() {
        return done;
    }

    static BristleconeException usage(String message) {
        return new BristleconeException(Status.USAGE, message);
    }

    static BristleconeException closed() {
        return new BristleconeException(Status.CLOSED, "the handle or its pool was closed");
    }

    static BristleconeException corrupted(String kind) {
        return new BristleconeException(Status.CORRUPTED, "the stored bytes are no " + kind);
    }
}
