package bristlecone;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;

/**
 * When a value expires: at a time, never, or as its tree says.
 *
 * @param millis milliseconds since 1970, unsigned; 0 is {@link #NEVER}, and -1 {@link #DEFAULT}
 */
public record Expiry(long millis) {
    /** The value does not expire. */
    public static final Expiry NEVER = new Expiry(0);
    /** The expiry that the tree gives: {@link ExpiringTree#expireAfter}. */
    public static final Expiry DEFAULT = new Expiry(-1);

    /**
     * Returns the expiry at a time, rounded up to a millisecond. A time before 1970 has passed already.
     *
     * @param time the time
     * @return the expiry
     */
    public static Expiry at(Instant time) {
        return new Expiry(time.isBefore(Instant.EPOCH) ? 1 : Math.max(wholeMillis(Duration.between(Instant.EPOCH, time)), 1));
    }

    /**
     * Returns the expiry after a duration from now on.
     *
     * @param time the duration
     * @return the expiry
     */
    public static Expiry after(Duration time) {
        return at(Instant.now().plus(time));
    }

    /**
     * Returns the time.
     *
     * @return the time, or nothing if the value does not expire, or later than 2^63 milliseconds after 1970
     */
    public Optional<Instant> time() {
        return millis > 0 ? Optional.of(Instant.ofEpochMilli(millis)) : Optional.empty();
    }

    /** Returns a duration in milliseconds, rounded up. */
    static long wholeMillis(Duration of) {
        long whole = of.toMillis();
        return of.minusMillis(whole).isZero() ? whole : whole + 1;
    }
}
