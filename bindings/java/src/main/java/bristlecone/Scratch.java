package bristlecone;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Memory outside of the heap for the arguments and results of one call of a thread. */
final class Scratch {
    private static final ThreadLocal<Scratch> CURRENT = ThreadLocal.withInitial(Scratch::new);
    private static final long ALIGNMENT = 16;
    /** An empty key or value: a pointer that is not null. */
    private static final MemorySegment EMPTY = Arena.global().allocate(1).asSlice(0, 0);

    private MemorySegment memory = Arena.ofAuto().allocate(1024, ALIGNMENT);
    private long used;

    /** Returns the memory of this thread for a new call. What the last call had is not valid any more. */
    static Scratch begin() {
        Scratch current = CURRENT.get();
        current.used = 0;
        return current;
    }

    /** Returns memory for a result. */
    MemorySegment room(long bytes) {
        long begin = (used + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        if (begin + bytes > memory.byteSize()) {
            // Earlier parts keep the old memory alive.
            memory = Arena.ofAuto().allocate(Math.max(2 * memory.byteSize(), bytes), ALIGNMENT);
            begin = 0;
        }
        used = begin + bytes;
        return memory.asSlice(begin, bytes);
    }

    /** Returns memory of zeros. */
    MemorySegment zeros(long bytes) {
        return room(bytes).fill((byte) 0);
    }

    /** Copies bytes. */
    MemorySegment put(byte[] bytes) {
        if (bytes.length == 0) {
            return EMPTY;
        }
        MemorySegment to = room(bytes.length);
        MemorySegment.copy(bytes, 0, to, ValueLayout.JAVA_BYTE, 0, bytes.length);
        return to;
    }

    /** Copies bytes; none becomes a null pointer. */
    MemorySegment putOptional(byte[] bytes) {
        return bytes == null ? MemorySegment.NULL : put(bytes);
    }

    /** Copies a name. A string of C ends at its first zero, so that names contain none. */
    MemorySegment putName(String name) {
        if (name == null) {
            return MemorySegment.NULL;
        }
        byte[] bytes = Kind.STR.encode(name);
        for (byte it : bytes) {
            if (it == 0) {
                throw BristleconeException.usage("a name contains a zero byte");
            }
        }
        return put(java.util.Arrays.copyOf(bytes, bytes.length + 1));
    }
}
