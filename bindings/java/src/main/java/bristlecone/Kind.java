package bristlecone;

import java.math.BigInteger;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
import java.util.function.BiConsumer;
import java.util.function.Function;

/**
 * A kind of keys or values: its name in the pool, its Java type, its order and its bytes.
 *
 * <table>
 * <caption>Kinds</caption>
 * <tr><th>kind</th><th>Java</th></tr>
 * <tr><td>{@link #U8}, {@link #U16}, {@link #U32}</td><td>{@code Integer}, {@code Integer}, {@code Long}</td></tr>
 * <tr><td>{@link #U64}</td><td>{@code Long}, taken as unsigned: see {@link Long#toUnsignedString(long)}</td></tr>
 * <tr><td>{@link #I8} to {@link #I64}</td><td>{@code Byte}, {@code Short}, {@code Integer}, {@code Long}</td></tr>
 * <tr><td>{@link #U128}, {@link #I128}</td><td>{@code BigInteger}</td></tr>
 * <tr><td>{@link #F32}, {@link #F64}</td><td>{@code Float}, {@code Double}; -0.0 before 0.0, NaN last</td></tr>
 * <tr><td>{@link #BOOL}, {@link #CHAR}</td><td>{@code Boolean}; {@code Integer}, a code point</td></tr>
 * <tr><td>{@link #STR}, {@link #JSON}</td><td>{@code String}; JSON for values only</td></tr>
 * <tr><td>{@link #BYTES}, {@link #POSTCARD}, {@link #array}</td><td>{@code byte[]}; postcard for values only</td></tr>
 * <tr><td>{@link #option}</td><td>{@code Optional}, the empty one first</td></tr>
 * <tr><td>{@link #tuple}, {@link #record}</td><td>{@code List<Object>}; a record</td></tr>
 * <tr><td>{@link #expiring}, for values only</td><td>{@code List<Object>}: milliseconds since 1970, or 0, and the value</td></tr>
 * <tr><td>{@link #UNIT}</td><td>{@link Unit}</td></tr>
 * </table>
 *
 * <p>Keys have up to 16 KiB, values up to 128 KiB.
 *
 * @param <T> the Java type
 */
public final class Kind<T> {
    /** The only value of the kind {@code ()}. */
    public enum Unit {
        /** The value. */
        UNIT
    }

    /** Unsigned, 8 bits. */
    public static final Kind<Integer> U8 = unsigned("u8", 0xff, Encoder::putByte, from -> from.get() & 0xff);
    /** Unsigned, 16 bits. */
    public static final Kind<Integer> U16 = unsigned("u16", 0xffff, Encoder::putShort, from -> from.getShort() & 0xffff);
    /** Unsigned, 32 bits. */
    public static final Kind<Long> U32 = word("u32", Long.class, Kind::putU32, from -> from.getInt() & 0xffff_ffffL);
    /** Unsigned, 64 bits: a {@code long} in two's complement. */
    public static final Kind<Long> U64 =
        new Kind<>("u64", Long.class, Long::compareUnsigned, false, Encoder::putLong, ByteBuffer::getLong);
    /** Unsigned, 128 bits. */
    public static final Kind<BigInteger> U128 = wide("u128", BigInteger.ZERO, BigInteger.TWO.pow(128));
    /** Signed, 8 bits. */
    public static final Kind<Byte> I8 = word("i8", Byte.class, (to, it) -> to.putByte(it), ByteBuffer::get);
    /** Signed, 16 bits. */
    public static final Kind<Short> I16 = word("i16", Short.class, (to, it) -> to.putShort(it), ByteBuffer::getShort);
    /** Signed, 32 bits. */
    public static final Kind<Integer> I32 = word("i32", Integer.class, Encoder::putInt, ByteBuffer::getInt);
    /** Signed, 64 bits. */
    public static final Kind<Long> I64 = word("i64", Long.class, Encoder::putLong, ByteBuffer::getLong);
    /** Signed, 128 bits. */
    public static final Kind<BigInteger> I128 =
        wide("i128", BigInteger.TWO.pow(127).negate(), BigInteger.TWO.pow(127));
    /** Floats of 32 bits. */
    public static final Kind<Float> F32 = new Kind<>("f32", Float.class, Kind::compareFloats, false,
        (to, it) -> to.putInt(Float.floatToRawIntBits(it)), from -> Float.intBitsToFloat(from.getInt()));
    /** Floats of 64 bits. */
    public static final Kind<Double> F64 = new Kind<>("f64", Double.class, Kind::compareDoubles, false,
        (to, it) -> to.putLong(Double.doubleToRawLongBits(it)), from -> Double.longBitsToDouble(from.getLong()));
    /** Booleans. */
    public static final Kind<Boolean> BOOL =
        word("bool", Boolean.class, (to, it) -> to.putByte(it ? 1 : 0), from -> bit("bool", from));
    /** Unicode scalar values, as code points. */
    public static final Kind<Integer> CHAR = word("char", Integer.class, Kind::putChar, ByteBuffer::getInt);
    /** Strings. */
    public static final Kind<String> STR = text("str");
    /** JSON as text, which is kept as it was written; for values only. */
    public static final Kind<String> JSON = text("json");
    /** Bytes. */
    public static final Kind<byte[]> BYTES = bytes("bytes");
    /** Bytes of postcard; for values only. */
    public static final Kind<byte[]> POSTCARD = bytes("postcard");
    /** The unit. */
    public static final Kind<Unit> UNIT = word("()", Unit.class, (to, it) -> { }, from -> Unit.UNIT);

    private static final List<Kind<?>> NAMED = List.of(U8, U16, U32, U64, U128, I8, I16, I32, I64, I128, F32, F64, BOOL,
        CHAR, STR, JSON, BYTES, POSTCARD, UNIT);
    private static final int ELEMENTS_MAX = 8;
    private static final int DEPTH_MAX = 48;

    private final String name;
    private final Class<T> type;
    private final Comparator<T> order;
    /** Whether its bytes within others begin with their length. */
    private final boolean isCounted;
    private final BiConsumer<Encoder, T> put;
    private final Function<ByteBuffer, T> take;

    private Kind(String name, Class<T> type, Comparator<T> order, boolean isCounted, BiConsumer<Encoder, T> put,
        Function<ByteBuffer, T> take) {
        this.name = name;
        this.type = type;
        this.order = order;
        this.isCounted = isCounted;
        this.put = put;
        this.take = take;
    }

    private static <T extends Comparable<T>> Kind<T> word(String name, Class<T> type, BiConsumer<Encoder, T> put,
        Function<ByteBuffer, T> take) {
        return new Kind<>(name, type, Comparator.naturalOrder(), false, put, take);
    }

    private static Kind<Integer> unsigned(String name, int max, BiConsumer<Encoder, Integer> put,
        Function<ByteBuffer, Integer> take) {
        return word(name, Integer.class, (to, it) -> put.accept(to, inRange(name, it, max).intValue()), take);
    }

    private static Long inRange(String name, long number, long max) {
        if (number < 0 || number > max) {
            throw BristleconeException.usage(number + " is no " + name);
        }
        return number;
    }

    private static void putU32(Encoder to, Long number) {
        to.putInt(inRange("u32", number, 0xffff_ffffL).intValue());
    }

    private static void putChar(Encoder to, Integer point) {
        if (!Character.isValidCodePoint(point) || point >= Character.MIN_SURROGATE && point <= Character.MAX_SURROGATE) {
            throw BristleconeException.usage(point + " is no Unicode scalar value");
        }
        to.putInt(point);
    }

    private static boolean bit(String name, ByteBuffer from) {
        byte bit = from.get();
        if (bit != 0 && bit != 1) {
            throw BristleconeException.corrupted(name);
        }
        return bit == 1;
    }

    private static Kind<BigInteger> wide(String name, BigInteger min, BigInteger end) {
        boolean isLittle = ByteOrder.nativeOrder() == ByteOrder.LITTLE_ENDIAN;
        return word(name, BigInteger.class, (to, it) -> {
            if (it.compareTo(min) < 0 || it.compareTo(end) >= 0) {
                throw BristleconeException.usage(it + " is no " + name);
            }
            long low = it.longValue();
            long high = it.shiftRight(64).longValue();
            to.putLong(isLittle ? low : high);
            to.putLong(isLittle ? high : low);
        }, from -> {
            long first = from.getLong();
            long second = from.getLong();
            byte[] bytes = new byte[17];
            ByteBuffer.wrap(bytes).putLong(1, isLittle ? second : first).putLong(9, isLittle ? first : second);
            bytes[0] = (byte) (min.signum() < 0 && bytes[1] < 0 ? -1 : 0);
            return new BigInteger(bytes);
        });
    }

    private static int compareFloats(float one, float other) {
        int a = Float.floatToRawIntBits(one);
        int b = Float.floatToRawIntBits(other);
        return Integer.compare(a ^ a >> 31 >>> 1, b ^ b >> 31 >>> 1);
    }

    private static int compareDoubles(double one, double other) {
        long a = Double.doubleToRawLongBits(one);
        long b = Double.doubleToRawLongBits(other);
        return Long.compare(a ^ a >> 63 >>> 1, b ^ b >> 63 >>> 1);
    }

    /** Compares as the bytes of UTF-8 do: by code points. */
    private static int compareTexts(String one, String other) {
        int common = Math.min(one.length(), other.length());
        for (int at = 0; at < common; at++) {
            if (one.charAt(at) != other.charAt(at)) {
                return Integer.compare(rank(one.charAt(at)), rank(other.charAt(at)));
            }
        }
        return Integer.compare(one.length(), other.length());
    }

    /** Places surrogates behind all other characters of 16 bits. */
    private static int rank(char it) {
        return Character.isSurrogate(it) ? it + 0x10000 : it;
    }

    private static byte[] rest(ByteBuffer from) {
        byte[] bytes = new byte[from.remaining()];
        from.get(bytes);
        return bytes;
    }

    private static Kind<String> text(String name) {
        return new Kind<>(name, String.class, Kind::compareTexts, true, (to, it) -> {
            try {
                to.put(rest(StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(it))));
            } catch (CharacterCodingException unpaired) {
                throw BristleconeException.usage("a string with half of a pair of surrogates, where it is " + name);
            }
        }, from -> {
            try {
                return StandardCharsets.UTF_8.newDecoder().decode(from).toString();
            } catch (CharacterCodingException damaged) {
                throw BristleconeException.corrupted(name);
            }
        });
    }

    private static Kind<byte[]> bytes(String name) {
        return new Kind<>(name, byte[].class, Arrays::compareUnsigned, true, Encoder::put, Kind::rest);
    }

    /**
     * Returns the kind of byte arrays of one length.
     *
     * @param length the length
     * @return the kind
     */
    public static Kind<byte[]> array(int length) {
        if (length < 0) {
            throw BristleconeException.usage("an array of " + length + " bytes");
        }
        String name = "[u8; " + length + "]";
        return new Kind<>(name, byte[].class, Arrays::compareUnsigned, false, (to, it) -> {
            if (it.length != length) {
                throw BristleconeException.usage("an array of " + it.length + " bytes is no " + name);
            }
            to.put(it);
        }, from -> {
            byte[] bytes = new byte[length];
            from.get(bytes);
            return bytes;
        });
    }

    /**
     * Returns the kind of optional data.
     *
     * @param inner the kind of those that are present
     * @param <T> their type
     * @return the kind
     */
    public static <T> Kind<Optional<T>> option(Kind<T> inner) {
        String name = "Option<" + inner.name + ">";
        Comparator<Optional<T>> order = (one, other) -> one.isEmpty() || other.isEmpty()
            ? Boolean.compare(one.isPresent(), other.isPresent()) : inner.order.compare(one.get(), other.get());
        return new Kind<>(name, Kind.<Optional<T>>cast(Optional.class), order, false, (to, it) -> {
            to.putByte(it.isPresent() ? 1 : 0);
            it.ifPresent(data -> inner.pack(to, data));
        }, from -> bit(name, from) ? Optional.of(inner.unpack(from)) : Optional.empty());
    }

    @SuppressWarnings("unchecked")
    private static <T> Class<T> cast(Class<?> type) {
        return (Class<T>) type;
    }

    /**
     * Returns the kind of tuples of one to eight elements, as lists.
     *
     * @param elements the kinds of the elements
     * @return the kind
     */
    public static Kind<List<Object>> tuple(Kind<?>... elements) {
        List<Kind<Object>> kinds = ofAny(elements);
        return new Kind<>(nameOf(kinds), Kind.<List<Object>>cast(List.class), (one, other) -> compare(kinds, one, other), false,
            (to, it) -> putAll(kinds, to, it), from -> takeAll(kinds, from));
    }

    /**
     * Returns the kind of tuples that are records.
     *
     * @param type the class of the records
     * @param elements the kinds of their components
     * @param <R> the class of the records
     * @return the kind
     */
    public static <R extends Record> Kind<R> record(Class<R> type, Kind<?>... elements) {
        List<Kind<Object>> kinds = ofAny(elements);
        Components<R> components = new Components<>(type, kinds.stream().<Class<?>>map(kind -> kind.type).toList());
        return new Kind<>(nameOf(kinds), type,
            (one, other) -> compare(kinds, components.of(one), components.of(other)), false,
            (to, it) -> putAll(kinds, to, components.of(it)), from -> components.construct(takeAll(kinds, from)));
    }

    /**
     * Returns the kind of values that expire: lists of the time in milliseconds since 1970, or 0, and the value.
     * {@link ExpiringTree} takes and shows the values without their times.
     *
     * @param inner the kind of the values
     * @return the kind
     */
    public static Kind<List<Object>> expiring(Kind<?> inner) {
        Kind<List<Object>> pair = tuple(U64, inner);
        return new Kind<>("Expiring<" + inner.name + ">", pair.type, pair.order, false, pair.put, pair.take);
    }

    @SuppressWarnings("unchecked")
    private static List<Kind<Object>> ofAny(Kind<?>... elements) {
        if (elements.length < 1 || elements.length > ELEMENTS_MAX) {
            throw BristleconeException.usage("a tuple of " + elements.length + ": it has 1 to " + ELEMENTS_MAX + " elements");
        }
        return Arrays.stream(elements).map(kind -> (Kind<Object>) Objects.requireNonNull(kind)).toList();
    }

    private static String nameOf(List<Kind<Object>> kinds) {
        String names = String.join(", ", kinds.stream().map(Kind::name).toList());
        return "(" + names + (kinds.size() == 1 ? ",)" : ")");
    }

    private static int compare(List<Kind<Object>> kinds, List<Object> one, List<Object> other) {
        for (int at = 0; at < kinds.size(); at++) {
            int compared = kinds.get(at).order.compare(one.get(at), other.get(at));
            if (compared != 0) {
                return compared;
            }
        }
        return 0;
    }

    private static void putAll(List<Kind<Object>> kinds, Encoder to, List<Object> elements) {
        if (elements.size() != kinds.size()) {
            throw BristleconeException.usage("a tuple of " + elements.size() + " is no " + nameOf(kinds));
        }
        for (int at = 0; at < kinds.size(); at++) {
            kinds.get(at).pack(to, elements.get(at));
        }
    }

    private static List<Object> takeAll(List<Kind<Object>> kinds, ByteBuffer from) {
        List<Object> elements = new ArrayList<>(kinds.size());
        kinds.forEach(kind -> elements.add(kind.unpack(from)));
        return List.copyOf(elements);
    }

    /**
     * Returns the kind with a name, such as {@code (str, u64)}, with tuples as lists.
     *
     * @param name the name
     * @return the kind
     */
    public static Kind<?> parse(String name) {
        Parser parser = new Parser(name);
        Kind<?> kind = parser.take(0);
        if (!parser.rest.isEmpty()) {
            throw parser.unknown();
        }
        return kind;
    }

    private static final class Parser {
        private final String name;
        private String rest;

        Parser(String name) {
            this.name = name;
            this.rest = name;
        }

        BristleconeException unknown() {
            return BristleconeException.usage("unknown kind \"" + name + "\"");
        }

        private boolean skips(String text) {
            boolean found = rest.startsWith(text);
            rest = found ? rest.substring(text.length()) : rest;
            return found;
        }

        Kind<?> take(int depth) {
            if (depth > DEPTH_MAX) {
                throw unknown();
            }
            if (skips("[u8; ")) {
                return takeArray();
            }
            if (skips("Option<")) {
                Kind<?> inner = take(depth + 1);
                if (!skips(">")) {
                    throw unknown();
                }
                return option(inner);
            }
            if (skips("Expiring<")) {
                Kind<?> inner = take(depth + 1);
                if (!skips(">")) {
                    throw unknown();
                }
                return expiring(inner);
            }
            for (Kind<?> kind : NAMED) {
                String next = rest.length() > kind.name.length() ? rest.substring(kind.name.length(), kind.name.length() + 1) : "";
                if (rest.startsWith(kind.name) && (kind == UNIT || ",)>".contains(next))) {
                    rest = rest.substring(kind.name.length());
                    return kind;
                }
            }
            if (skips("(")) {
                return takeTuple(depth);
            }
            throw unknown();
        }

        private Kind<?> takeArray() {
            int end = rest.indexOf(']');
            try {
                Kind<?> kind = array(Integer.parseInt(rest.substring(0, Math.max(end, 0))));
                rest = rest.substring(end + 1);
                return kind;
            } catch (NumberFormatException none) {
                throw unknown();
            }
        }

        private Kind<?> takeTuple(int depth) {
            List<Kind<?>> kinds = new ArrayList<>();
            while (true) {
                kinds.add(take(depth + 1));
                if (skips(kinds.size() == 1 ? ",)" : ")")) {
                    return tuple(kinds.toArray(Kind<?>[]::new));
                }
                if (!skips(", ")) {
                    throw unknown();
                }
            }
        }
    }

    /**
     * Returns the name of the kind in the pool.
     *
     * @return the name
     */
    public String name() {
        return name;
    }

    /**
     * Returns the order of keys of this kind, which is that of the tree.
     *
     * @return the order
     */
    public Comparator<T> comparator() {
        return order;
    }

    private void pack(Encoder to, T data) {
        check(data);
        if (!isCounted) {
            put.accept(to, data);
            return;
        }
        byte[] bytes = encode(data);
        to.putLong(bytes.length);
        to.put(bytes);
    }

    private T unpack(ByteBuffer from) {
        if (!isCounted) {
            return take.apply(from);
        }
        long length = from.getLong();
        if (length < 0 || length > from.remaining()) {
            throw BristleconeException.corrupted(name);
        }
        ByteBuffer part = from.slice(from.position(), (int) length).order(ByteOrder.nativeOrder());
        from.position(from.position() + (int) length);
        return take.apply(part);
    }

    /** Checks the type of data, which an unchecked cast may have made another one. */
    private void check(Object data) {
        if (data == null) {
            throw new NullPointerException("null, where the kind is " + name);
        }
        if (!type.isInstance(data)) {
            throw BristleconeException.usage(data.getClass().getName() + ", where the kind is " + name);
        }
    }

    byte[] encode(T data) {
        check(data);
        Encoder to = new Encoder();
        put.accept(to, data);
        return to.bytes();
    }

    T decode(byte[] bytes) {
        ByteBuffer from = ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
        try {
            T data = take.apply(from);
            if (!from.hasRemaining()) {
                return data;
            }
        } catch (BufferUnderflowException shorter) {
            throw BristleconeException.corrupted(name);
        }
        throw BristleconeException.corrupted(name);
    }

    /** Returns the bytes of a word as a number. */
    static long decodeWord(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder()).getLong();
    }

    @Override
    public String toString() {
        return name;
    }
}
