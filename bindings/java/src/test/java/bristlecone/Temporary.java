package bristlecone;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** A folder in shared memory, if there is some, that is removed at the end. */
record Temporary(Path folder) implements AutoCloseable {
    static final long MAX_BYTES = 64 << 20;

    Temporary() {
        this(create());
    }

    private static Path create() {
        try {
            Path memory = Path.of("/dev/shm");
            return Files.isWritable(memory) ? Files.createTempDirectory(memory, "bristlecone-java-") : Files.createTempDirectory("bristlecone-java-");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    Path path() {
        return folder.resolve("trees.pool");
    }

    Pool open() {
        return Pool.open(path(), new Options().create().maxBytes(MAX_BYTES));
    }

    Pool openJournal() {
        return Pool.open(path(), new Options().create().maxBytes(MAX_BYTES).domain(Options.Domain.JOURNAL).cursorLimit(1 << 20));
    }

    @Override
    public void close() {
        try (Stream<Path> all = Files.walk(folder)) {
            List<Path> paths = all.sorted(Comparator.reverseOrder()).toList();
            for (Path path : paths) {
                Files.delete(path);
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
