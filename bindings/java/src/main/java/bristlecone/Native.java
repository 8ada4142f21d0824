package bristlecone;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.ArrayList;
import java.util.List;

/**
 * The calls of the C library. Handles are numbers, which the library looks up, so that any value of them is safe.
 *
 * <p>Upcalls copy what they are shown, and never throw: an exception in an upcall would end the process. Code of the
 * program does not run in one.
 */
final class Native {
    static final int OK = 0;
    static final int ABSENT = 4;
    static final int PRESENT = 32;
    static final int DIFFERS = 33;
    static final int TOO_SMALL = 37;

    /** The property, and the variable of the environment, that name the library's file. */
    private static final String PROPERTY = "bristlecone.library";
    private static final String VARIABLE = "BRISTLECONE_LIBRARY";
    private static final String LIBRARY = "libbristlecone.so.1";
    private static final int INTERFACE = 1;
    private static final long CURSOR_BYTES = 48;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LOOKUP = load();
    private static final MethodHandle ERRMSG = handle("errmsg", ADDRESS);

    private Native() {
    }

    @SuppressWarnings("restricted")
    private static SymbolLookup load() {
        String named = System.getProperty(PROPERTY, System.getenv(VARIABLE));
        try {
            SymbolLookup found = SymbolLookup.libraryLookup(named == null ? LIBRARY : named, Arena.global());
            MethodHandle version = LINKER.downcallHandle(found.find("bristlecone_abi_version").orElseThrow(), FunctionDescriptor.of(JAVA_INT));
            if ((int) version.invokeExact() == INTERFACE) {
                return found;
            }
        } catch (IllegalArgumentException absent) {
            throw new UnsatisfiedLinkError("the C library cannot be loaded: install it, or name its file by -D" + PROPERTY + "= or "
                + VARIABLE + ": " + absent.getMessage());
        } catch (Throwable other) {
            throw broken(other);
        }
        throw new UnsatisfiedLinkError("the C library has another interface than this package: build both again");
    }

    /** Returns a call: its result, and its parameters. */
    @SuppressWarnings("restricted")
    private static MethodHandle handle(String name, MemoryLayout result, MemoryLayout... parameters) {
        return LINKER.downcallHandle(LOOKUP.find("bristlecone_" + name).orElseThrow(), FunctionDescriptor.of(result, parameters));
    }

    /** A call that returns a status. Its letters are its parameters: a handle or number, an int, or a pointer. */
    static final class Call {
        private final MethodHandle handle;

        Call(String name, String parameters) {
            MemoryLayout[] layouts = parameters.chars().mapToObj(Call::layout).toArray(MemoryLayout[]::new);
            MethodHandle exact = handle(name, JAVA_INT, layouts);
            handle = exact.asSpreader(Object[].class, layouts.length).asType(MethodType.methodType(int.class, Object[].class));
        }

        private static MemoryLayout layout(int letter) {
            return switch (letter) {
                case 'n' -> JAVA_LONG;
                case 'i' -> JAVA_INT;
                default -> ADDRESS;
            };
        }

        /** Makes the call; returns its status, which may be that of an error. */
        int on(Object... arguments) {
            try {
                return (int) handle.invokeExact(arguments);
            } catch (Throwable thrown) {
                throw broken(thrown);
            }
        }
    }

    private static final MethodHandle GET_WORD = handle("get_u64", JAVA_INT, JAVA_LONG, JAVA_LONG, ADDRESS);
    private static final MethodHandle PUT_WORD = handle("put_u64", JAVA_INT, JAVA_LONG, JAVA_LONG, JAVA_LONG);
    private static final MethodHandle GET =
        handle("get", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS);
    private static final MethodHandle PUT =
        handle("put", JAVA_INT, JAVA_LONG, ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
    private static final MethodHandle ITER_NEXT =
        handle("iter_next", JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS);
    private static final MethodHandle ITER_NEXT_BACK =
        handle("iter_next_back", JAVA_INT, JAVA_LONG, ADDRESS, ADDRESS, ADDRESS, ADDRESS);

    static final Call POOL_OPEN = new Call("pool_open", "ppp");
    static final Call POOL_CLOSE = new Call("pool_close", "n");
    static final Call POOL_INFO = new Call("pool_get_info", "np");
    static final Call POOL_CHECK = new Call("pool_check", "npp");
    static final Call POOL_TREES = new Call("pool_trees", "npp");
    static final Call POOL_DROP = new Call("pool_drop_tree", "np");
    static final Call POOL_RENAME = new Call("pool_rename_tree", "npp");
    static final Call POOL_CLEAR = new Call("pool_clear_tree", "np");
    static final Call POOL_PREFAULT = new Call("pool_prefault", "nn");
    static final Call POOL_SYNC = new Call("pool_sync", "n");
    static final Call POOL_CHECKPOINT = new Call("pool_checkpoint", "n");
    static final Call POOL_PRUNE = new Call("pool_prune_journal", "n");
    static final Call POOL_JOURNAL = new Call("pool_get_journal_status", "np");
    static final Call TREE_OPEN_OR_CREATE = new Call("tree_open_or_create", "npppp");
    static final Call TREE_OPEN = new Call("tree_open", "npp");
    static final Call TREE_CREATE = new Call("tree_create", "nppppp");
    static final Call TREE_EXPIRING = new Call("tree_expiring", "np");
    static final Call TREE_CLOSE = new Call("tree_close", "n");
    static final Call TREE_INFO = new Call("tree_get_info", "np");
    static final Call TREE_LEN = new Call("tree_len", "np");
    static final Call TREE_CHECK = new Call("tree_check", "npp");
    static final Call CONTAINS = new Call("contains", "npn");
    static final Call EXCHANGE = new Call("exchange", "npnpnpp");
    static final Call INSERT = new Call("insert", "npnpnpp");
    static final Call UPDATE = new Call("update", "npnpnpp");
    static final Call REMOVE = new Call("remove", "npnpp");
    static final Call SWAP = new Call("compare_and_swap", "npnpnpnpp");
    static final Call EXPIRING_PUT = new Call("expiring_put", "npnpnn");
    static final Call EXPIRING_EXCHANGE = new Call("expiring_exchange", "npnpnnpp");
    static final Call EXPIRING_INSERT = new Call("expiring_insert", "npnpnnpp");
    static final Call EXPIRING_UPDATE = new Call("expiring_update", "npnpnnpp");
    static final Call EXPIRING_SWAP = new Call("expiring_compare_and_swap", "npnpnpnnpp");
    static final Call EXPIRY = new Call("expiry", "npnp");
    static final Call SET_EXPIRY = new Call("set_expiry", "npnnp");
    static final Call REMOVE_EXPIRED = new Call("remove_expired", "nnppp");
    static final Call GET_MANY = new Call("get_many", "npnpp");
    static final Call PUT_MANY = new Call("put_many", "nppnp");
    static final Call REMOVE_MANY = new Call("remove_many", "npnp");
    static final Call REMOVE_RANGE = new Call("remove_range", "npp");
    static final Call REMOVE_PREFIX = new Call("remove_prefix", "npnp");
    static final Call ITER_OPEN = new Call("iter_open", "npp");
    static final Call ITER_OPEN_PREFIX = new Call("iter_open_prefix", "npnp");
    static final Call ITER_CLOSE = new Call("iter_close", "n");
    static final Call SNAPSHOT_OPEN = new Call("snapshot_open", "nnp");
    static final Call SNAPSHOT_CLOSE = new Call("snapshot_close", "n");
    static final Call SNAPSHOT_BYTES = new Call("snapshot_bytes", "np");
    static final Call SNAPSHOT_GET = new Call("snapshot_get", "nnpnpnp");
    static final Call SNAPSHOT_ITER = new Call("snapshot_iter_open", "nnpp");
    static final Call BATCH_BEGIN = new Call("batch_begin", "np");
    static final Call BATCH_PUT = new Call("batch_put", "nnpnpn");
    static final Call BATCH_REMOVE = new Call("batch_remove", "nnpn");
    static final Call BATCH_EXPECT = new Call("batch_expect", "nnpnpn");
    static final Call BATCH_COMMIT = new Call("batch_commit", "n");
    static final Call BATCH_DISCARD = new Call("batch_discard", "n");
    static final Call TRANSACTION_BEGIN = new Call("transaction_begin", "np");
    static final Call TRANSACTION_GET = new Call("transaction_get", "nnpnpnp");
    static final Call TRANSACTION_PUT = new Call("transaction_put", "nnpnpn");
    static final Call TRANSACTION_REMOVE = new Call("transaction_remove", "nnpn");
    static final Call TRANSACTION_SCAN = new Call("transaction_scan", "nnppp");
    static final Call TRANSACTION_COMMIT = new Call("transaction_commit", "n");
    static final Call TRANSACTION_ROLLBACK = new Call("transaction_rollback", "n");
    static final Call CHANGES_OPEN = new Call("changes_open", "nnp");
    static final Call CHANGES_OPEN_CURSOR = new Call("changes_open_cursor", "npp");
    static final Call CHANGES_NEXT = new Call("changes_next", "nnp");
    static final Call CHANGES_STOP = new Call("changes_stop", "n");
    static final Call CHANGES_ADVANCE = new Call("changes_advance", "nn");
    static final Call CHANGES_CLOSE = new Call("changes_close", "n");
    static final Call CURSOR_CREATE = new Call("pool_create_cursor", "npnp");
    static final Call CURSOR_DROP = new Call("pool_drop_cursor", "np");
    static final Call CURSORS = new Call("pool_cursors", "npp");

    /** Shows a value to {@link Shown}. */
    static final MemorySegment SHOW = upcall("show", "ppn", false);
    /** Shows a value and its index. */
    static final MemorySegment SHOW_AT = upcall("showAt", "pnpn", false);
    /** Shows an item, and says whether it was the last one wanted. */
    static final MemorySegment SHOW_ITEM = upcall("showItem", "ppnpn", true);
    /** Shows an issue. */
    static final MemorySegment SHOW_ISSUE = upcall("showIssue", "ppp", false);
    /** Shows a tree. */
    static final MemorySegment SHOW_TREE = upcall("showTree", "ppppp", false);
    /** Shows a cursor. */
    static final MemorySegment SHOW_CURSOR = upcall("showCursor", "pp", false);

    @SuppressWarnings("restricted")
    private static MemorySegment upcall(String name, String parameters, boolean returnsInt) {
        MemoryLayout[] layouts = parameters.chars().mapToObj(Call::layout).toArray(MemoryLayout[]::new);
        FunctionDescriptor descriptor = returnsInt ? FunctionDescriptor.of(JAVA_INT, layouts) : FunctionDescriptor.ofVoid(layouts);
        try {
            MethodHandle target = MethodHandles.lookup().findStatic(Shown.class, name, descriptor.toMethodType());
            return LINKER.upcallStub(target, descriptor, Arena.global());
        } catch (ReflectiveOperationException missing) {
            throw broken(missing);
        }
    }

    static int getWord(long tree, long key, MemorySegment value) {
        try {
            return (int) GET_WORD.invokeExact(tree, key, value);
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
    }

    static int putWord(long tree, long key, long value) {
        try {
            return (int) PUT_WORD.invokeExact(tree, key, value);
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
    }

    static int get(long tree, MemorySegment key, MemorySegment to, MemorySegment bytes) {
        try {
            return (int) GET.invokeExact(tree, key, key.byteSize(), to, to.byteSize(), bytes);
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
    }

    static int put(long tree, MemorySegment key, MemorySegment value) {
        try {
            return (int) PUT.invokeExact(tree, key, key.byteSize(), value, value.byteSize());
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
    }

    /** Advances an iterator. The four words of {@code to} become the key, its length, the value and its length. */
    static int next(long iterator, boolean isBack, MemorySegment to) {
        try {
            MemorySegment key = to.asSlice(0, 8);
            MemorySegment keyBytes = to.asSlice(8, 8);
            MemorySegment value = to.asSlice(16, 8);
            MemorySegment valueBytes = to.asSlice(24, 8);
            return isBack ? (int) ITER_NEXT_BACK.invokeExact(iterator, key, keyBytes, value, valueBytes)
                : (int) ITER_NEXT.invokeExact(iterator, key, keyBytes, value, valueBytes);
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
    }

    /**
     * Returns the error of a status, with the message of this thread's last call. Nothing blocks between the two calls, so
     * that a virtual thread has the same carrier.
     */
    static BristleconeException error(int status) {
        return error(status, 0);
    }

    static BristleconeException error(int status, long done) {
        String message;
        try {
            message = text((MemorySegment) ERRMSG.invokeExact());
        } catch (Throwable thrown) {
            throw broken(thrown);
        }
        return new BristleconeException(Status.of(status), message, done);
    }

    /** Copies bytes at an address of the library. */
    @SuppressWarnings("restricted")
    static byte[] copy(MemorySegment at, long bytes) {
        return bytes == 0 ? new byte[0] : at.reinterpret(bytes).toArray(JAVA_BYTE);
    }

    /** Copies a string of the library. */
    @SuppressWarnings("restricted")
    static String text(MemorySegment at) {
        return at.reinterpret(Long.MAX_VALUE).getString(0);
    }

    private static Error broken(Throwable thrown) {
        if (thrown instanceof Error error) {
            return error;
        }
        return new AssertionError(thrown);
    }

    /** What upcalls have shown to a call of this thread. */
    static final class Shown {
        private static final ThreadLocal<Shown> CURRENT = ThreadLocal.withInitial(Shown::new);

        final List<byte[]> parts = new ArrayList<>();
        final List<String> texts = new ArrayList<>();
        final List<Long> indexes = new ArrayList<>();
        private int itemsMax;
        private Throwable failed;

        /** Begins to collect, up to a number of items. */
        static Shown begin(int itemsMax) {
            Shown current = CURRENT.get();
            current.parts.clear();
            current.texts.clear();
            current.indexes.clear();
            current.itemsMax = itemsMax;
            current.failed = null;
            return current;
        }

        /** Throws what prevented an upcall from copying, such as too little memory. */
        void verify() {
            if (failed != null) {
                throw new AssertionError(failed);
            }
        }

        private static void collect(java.util.function.Consumer<Shown> copying) {
            Shown current = CURRENT.get();
            try {
                copying.accept(current);
            } catch (Throwable thrown) {
                current.failed = thrown;
            }
        }

        static void show(MemorySegment context, MemorySegment value, long bytes) {
            collect(to -> to.parts.add(copy(value, bytes)));
        }

        static void showAt(MemorySegment context, long index, MemorySegment value, long bytes) {
            collect(to -> {
                to.parts.add(copy(value, bytes));
                to.indexes.add(index);
            });
        }

        static int showItem(MemorySegment context, MemorySegment key, long keyBytes, MemorySegment value, long valueBytes) {
            collect(to -> {
                to.parts.add(copy(key, keyBytes));
                to.parts.add(copy(value, valueBytes));
            });
            Shown current = CURRENT.get();
            return current.failed != null || current.parts.size() >= 2 * current.itemsMax ? 1 : 0;
        }

        static void showIssue(MemorySegment context, MemorySegment location, MemorySegment what) {
            collect(to -> to.texts.addAll(List.of(text(location), text(what))));
        }

        static void showTree(MemorySegment context, MemorySegment name, MemorySegment keys, MemorySegment values, MemorySegment design) {
            collect(to -> to.texts.addAll(List.of(text(name), text(keys), text(values), text(design))));
        }

        /** Collects the name of a cursor, and the words LSN, bytes, time and whether it was dropped. */
        @SuppressWarnings("restricted")
        static void showCursor(MemorySegment context, MemorySegment cursor) {
            collect(to -> {
                MemorySegment of = cursor.reinterpret(CURSOR_BYTES);
                to.texts.add(text(of.get(ADDRESS, 8)));
                to.indexes.addAll(List.of(of.get(JAVA_LONG, 16), of.get(JAVA_LONG, 24), of.get(JAVA_LONG, 32), (long) of.get(JAVA_INT, 40)));
            });
        }
    }
}
