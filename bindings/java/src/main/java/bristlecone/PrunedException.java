package bristlecone;

/**
 * An error of a stream of changes: the journal does not keep the requested commits any more, or the cursor held back too much
 * and was dropped. Its status is {@link Status#PRUNED}. Read all items, and continue from the oldest LSN, or from a new cursor.
 */
public final class PrunedException extends BristleconeException {
    private static final long serialVersionUID = 1;

    /** The LSN of the oldest commit that is kept. */
    private final long oldestLsn;

    PrunedException(String message, long oldestLsn) {
        super(Status.PRUNED, message);
        this.oldestLsn = oldestLsn;
    }

    /**
     * Returns the LSN of the oldest commit that is kept.
     *
     * @return the LSN
     */
    public long oldestLsn() {
        return oldestLsn;
    }
}
