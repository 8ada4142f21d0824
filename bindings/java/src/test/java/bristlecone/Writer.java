package bristlecone;

import java.nio.file.Path;

/** A program that writes until it is killed, and reports each number once its writes have returned. */
final class Writer {
    private Writer() {
    }

    public static void main(String[] arguments) {
        Pool pool = Pool.open(Path.of(arguments[0]), new Options().create().maxBytes(Temporary.MAX_BYTES));
        Tree<Long, Long> words = pool.tree("words", Kind.U64, Kind.U64);
        Tree<String, byte[]> texts = pool.tree("texts", Kind.STR, Kind.BYTES);
        for (long number = 0;; number++) {
            words.put(number, ~number);
            texts.put("item " + number, new byte[(int) (number % 100)]);
            System.out.println(number);
            System.out.flush();
        }
    }
}
