package bristlecone;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;

/** The bytes of a key or a value, as the C library takes them. */
final class Encoder {
    private byte[] bytes = new byte[64];
    private ByteBuffer view = viewOf(bytes);
    private int length;

    private static ByteBuffer viewOf(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder());
    }

    private int room(int more) {
        if (bytes.length - length < more) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, Math.addExact(length, more)));
            view = viewOf(bytes);
        }
        int at = length;
        length += more;
        return at;
    }

    void put(byte[] data) {
        // Room may replace the bytes and their view.
        int at = room(data.length);
        System.arraycopy(data, 0, bytes, at, data.length);
    }

    void putByte(int data) {
        int at = room(1);
        view.put(at, (byte) data);
    }

    void putShort(int data) {
        int at = room(2);
        view.putShort(at, (short) data);
    }

    void putInt(int data) {
        int at = room(4);
        view.putInt(at, data);
    }

    void putLong(long data) {
        int at = room(8);
        view.putLong(at, data);
    }

    byte[] bytes() {
        return Arrays.copyOf(bytes, length);
    }
}
