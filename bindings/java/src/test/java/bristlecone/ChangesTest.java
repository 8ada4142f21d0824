package bristlecone;

import static bristlecone.PoolTest.refused;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class ChangesTest {
    /** Longer than any test. */
    private static final Duration LONG = Duration.ofSeconds(Long.MAX_VALUE);

    private static List<Changes.Commit> collect(Pool pool, long lsn) {
        try (Changes changes = pool.changes(lsn)) {
            return changes.stream().toList();
        }
    }

    @Test
    void wholeCommitsArriveInOrder() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal()) {
            Tree<String, List<Object>> ages = pool.tree("ages", Kind.STR, Kind.tuple(Kind.U64, Kind.STR));
            ages.put("Methuselah", List.of(4857L, "pine"));
            pool.batch().put(ages, "Pando", List.of(14000L, "aspen")).remove(ages, "Methuselah").commit();
            ages.close();
            pool.renameTree("ages", "years");
            pool.clearTree("years");
            List<Changes.Commit> commits = collect(pool, 0);
            int id = commits.getFirst().changes().getFirst().treeId();
            assertEquals(List.of(
                new Changes.Change(Changes.What.REMOVE, "ages", id, id, "str", "(u64, str)", "Methuselah", null, Optional.of(true), null),
                new Changes.Change(Changes.What.PUT, "ages", id, id, "str", "(u64, str)", "Pando", List.of(14000L, "aspen"), Optional.of(false), null)),
                commits.get(2).changes());
            assertEquals("years", commits.get(3).changes().getFirst().renamedTo());
            assertNotEquals(id, commits.get(4).changes().getFirst().newTreeId());
            for (int at = 1; at < commits.size(); at++) {
                assertTrue(commits.get(at - 1).nextLsn() <= commits.get(at).lsn());
            }
            assertTrue(Duration.between(commits.getFirst().time(), Instant.now()).abs().compareTo(Duration.ofMinutes(5)) < 0);
            // A stream continues where another one ended.
            assertEquals(commits.subList(2, 5), collect(pool, commits.get(1).nextLsn()));
            refused(Status.USAGE, () -> pool.changes(1L << 40));
            refused(Status.USAGE, () -> pool.changes(-1));
            try (Changes none = pool.changes(commits.getLast().nextLsn())) {
                Iterator<Changes.Commit> ended = none.iterator();
                assertFalse(ended.hasNext());
                assertThrows(NoSuchElementException.class, ended::next);
            }
        }
    }

    @Test
    void valuesThatExpireHaveTheirTimes() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal()) {
            for (Map.Entry<String, Object> it : Map.<String, Object>of("u64", 7L, "str", "seven", "json", "[7]").entrySet()) {
                String kind = "Expiring<" + it.getKey() + ">";
                @SuppressWarnings("unchecked")
                Kind<Object> values = (Kind<Object>) Kind.parse(kind);
                assertEquals(kind, values.name());
                Tree<String, Object> tree = pool.tree(it.getKey(), Kind.STR, values);
                List<Object> entry = List.of(1_900_000_000_000L, it.getValue());
                tree.put("a", entry);
                assertEquals(entry, tree.get("a"));
                assertEquals(entry, tree.scan().iterator().next().getValue());
                refused(Status.USAGE, () -> tree.put("a", it.getValue()));
                assertEquals(entry, collect(pool, 0).getLast().changes().getFirst().value());
            }
            refused(Status.USAGE, () -> pool.tree("x", Kind.parse("Expiring<u64>"), Kind.U64));
            refused(Status.USAGE, () -> Kind.parse("Expiring<u64"));
        }
    }

    @Test
    void aLongCommitIsWhole() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal(); Batch batch = pool.batch()) {
            Tree<Long, String> tree = pool.tree("t", Kind.U64, Kind.STR);
            LongStream.range(0, 30_000).forEach(key -> batch.put(tree, key, "abcdefghijklmnop"));
            batch.commit();
            List<Changes.Commit> commits = collect(pool, 0);
            assertEquals(2, commits.size());
            assertEquals(LongStream.range(0, 30_000).boxed().toList(), commits.get(1).changes().stream().map(Changes.Change::key).toList());
        }
    }

    @Test
    void waitingEndsWithACommitATimeOrAnInterrupt() throws InterruptedException, ExecutionException {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal(); Changes changes = pool.changes(0)) {
            Tree<Long, Long> tree = pool.tree("t", Kind.U64, Kind.U64);
            assertNotNull(changes.take());
            assertNull(changes.poll());
            assertNull(changes.poll(Duration.ofMillis(50)));
            assertNull(changes.poll(Duration.ofSeconds(Long.MIN_VALUE)));
            for (ExecutorService executor : List.of(Executors.newSingleThreadExecutor(), Executors.newVirtualThreadPerTaskExecutor())) {
                try (executor) {
                    Future<Changes.Commit> next = executor.submit(() -> changes.poll(LONG));
                    TimeUnit.MILLISECONDS.sleep(30);
                    tree.put(1L, 2L);
                    assertEquals(1L, next.get().changes().getFirst().key());
                    Future<Boolean> interrupted = executor.submit(() -> {
                        assertThrows(InterruptedException.class, changes::take);
                        return Thread.currentThread().isInterrupted();
                    });
                    TimeUnit.MILLISECONDS.sleep(30);
                    executor.shutdownNow();
                    assertFalse(interrupted.get());
                }
            }
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> changes.poll(Duration.ZERO));
            // The stream is intact.
            tree.put(7L, 7L);
            assertEquals(7L, changes.take().changes().getFirst().key());
        }
    }

    @Test
    void aCursorKeepsWhatWasNotRead() throws InterruptedException {
        try (Temporary temporary = new Temporary()) {
            long next;
            try (Pool pool = temporary.openJournal()) {
                Tree<Long, byte[]> tree = pool.tree("t", Kind.U64, Kind.BYTES);
                long begun = pool.createCursor("audit");
                for (String name : List.of("audit", "a/b", "", "a\0b")) {
                    refused(Status.USAGE, () -> pool.createCursor(name, 0));
                }
                refused(Status.USAGE, () -> pool.createCursor("c", -1));
                LongStream.range(0, 10).forEach(key -> tree.put(key, new byte[1]));
                pool.checkpoint();
                Changes changes = pool.changesOf("audit");
                refused(Status.IN_USE, () -> pool.changesOf("audit"));
                next = IntStream.range(0, 5).mapToObj(at -> changes.poll()).toList().getLast().nextLsn();
                changes.advance(next);
                refused(Status.USAGE, () -> changes.advance(begun));
                try (Changes other = pool.changes(next)) {
                    refused(Status.USAGE, () -> other.advance(next));
                }
            }
            try (Pool pool = temporary.openJournal(); Changes changes = pool.changesOf("audit")) {
                List<Object> keys = changes.stream().map(it -> it.changes().getFirst().key()).toList();
                assertEquals(List.of(5L, 6L, 7L, 8L, 9L), keys);
                Changes.Cursor cursor = pool.cursors().getFirst();
                assertEquals("audit", cursor.name());
                assertEquals(next, cursor.lsn());
                assertFalse(cursor.isDropped());
                assertTrue(cursor.time().isAfter(Instant.EPOCH));
                isLost(pool, changes);
            }
        }
    }

    /** Asserts that a consumer that does not advance loses its cursor. */
    private static void isLost(Pool pool, Changes changes) throws InterruptedException {
        Tree<Long, byte[]> tree = pool.tree("t", Kind.U64, Kind.BYTES);
        LongStream.range(0, 600).forEach(key -> tree.put(key % 8, new byte[100_000]));
        pool.checkpoint();
        pool.checkpoint();
        PrunedException error = assertThrows(PrunedException.class, () -> {
            while (true) {
                changes.take();
            }
        });
        assertTrue(error.oldestLsn() > 0);
        // All later calls throw the error.
        refused(Status.PRUNED, changes::poll);
        refused(Status.PRUNED, () -> pool.changesOf("audit"));
        pool.dropCursor("audit");
        refused(Status.ABSENT, () -> pool.dropCursor("audit"));
        refused(Status.ABSENT, () -> pool.changesOf("audit"));
        long oldest = assertThrows(PrunedException.class, () -> pool.changes(0)).oldestLsn();
        assertEquals(pool.journalStatus().oldestLsn(), oldest);
        pool.changes(oldest).close();
    }

    @Test
    void closingEndsTheWaiting() throws InterruptedException, ExecutionException {
        try (Temporary temporary = new Temporary(); ExecutorService executor = Executors.newCachedThreadPool()) {
            for (int round = 0; round < 6; round++) {
                Pool pool = temporary.openJournal();
                Changes changes = pool.changes(0);
                Future<?> ended = executor.submit(() -> refused(Status.CLOSED, changes::take));
                TimeUnit.MILLISECONDS.sleep(7L * round);
                if (round % 2 == 0) {
                    changes.close();
                }
                pool.close();
                ended.get();
                List<Executable> calls = List.of(changes::poll, () -> changes.poll(LONG), changes::take, () -> changes.advance(0),
                    () -> changes.iterator().hasNext(), () -> pool.changes(0), () -> pool.changesOf("c"), () -> pool.createCursor("c"), pool::cursors,
                    () -> pool.dropCursor("c"));
                calls.forEach(call -> refused(Status.CLOSED, call));
                changes.close();
            }
        }
    }

    @Test
    void aSecondThreadIsRefused() throws InterruptedException, ExecutionException {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal(); Changes changes = pool.changes(0);
            ExecutorService executor = Executors.newCachedThreadPool()) {
            Tree<Long, Long> tree = pool.tree("t", Kind.U64, Kind.U64);
            int count = 200;
            ConcurrentSkipListSet<Long> found = new ConcurrentSkipListSet<>();
            List<Future<?>> readers = new ArrayList<>();
            for (int at = 0; at < 4; at++) {
                readers.add(executor.submit(() -> {
                    while (found.size() <= count) {
                        try {
                            Changes.Commit commit = changes.poll(Duration.ofMillis(1));
                            assertTrue(commit == null || found.add(commit.lsn()));
                        } catch (BristleconeException error) {
                            assertEquals(Status.IN_USE, error.status());
                        }
                    }
                    return null;
                }));
            }
            for (long key = 0; key < count; key++) {
                tree.put(key, key);
            }
            for (Future<?> reader : readers) {
                reader.get();
            }
            assertEquals(count + 1, found.size());
        }
    }

    @Test
    void poolsWithoutAJournalHaveNoStream() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            refused(Status.USAGE, () -> pool.changes(0));
            refused(Status.USAGE, () -> pool.changesOf("c"));
            refused(Status.USAGE, () -> pool.createCursor("c"));
            refused(Status.ABSENT, pool::cursors);
            refused(Status.USAGE, () -> new Options().cursorLimit(0));
        }
    }

    @Test
    void unreachableStreamsAreClosed() throws InterruptedException {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.openJournal()) {
            pool.createCursor("audit");
            pool.changesOf("audit");
            for (int attempt = 0;; attempt++) {
                System.gc();
                TimeUnit.MILLISECONDS.sleep(5);
                try (Changes changes = pool.changesOf("audit")) {
                    assertNull(changes.poll());
                    return;
                } catch (BristleconeException error) {
                    assertEquals(Status.IN_USE, error.status());
                    assertTrue(attempt < 1000, "the stream stays open");
                }
            }
        }
    }
}
