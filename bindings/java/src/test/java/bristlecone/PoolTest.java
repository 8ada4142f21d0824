package bristlecone;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

@Timeout(value = 120, unit = TimeUnit.SECONDS)
class PoolTest {
    static void refused(Status status, Executable call) {
        BristleconeException error = assertThrows(BristleconeException.class, call);
        assertEquals(status, error.status(), error::getMessage);
        assertFalse(error.getMessage().isEmpty());
    }

    /** A key of two elements. */
    record Place(String country, long rank) {
    }

    @Test
    void recordsAreTuples() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Kind<Place> places = Kind.record(Place.class, Kind.STR, Kind.U64);
            assertEquals("(str, u64)", places.name());
            Tree<Place, String> cities = pool.tree("cities", places, Kind.STR);
            cities.put(new Place("NL", 2), "Rotterdam");
            cities.put(new Place("NL", 1), "Amsterdam");
            assertEquals(List.of("Amsterdam", "Rotterdam"), cities.scan().from(new Place("NL", 0)).stream().map(Map.Entry::getValue).toList());
            assertEquals(List.of("NL", 1L), pool.tree("cities").scan().iterator().next().getKey());
            refused(Status.USAGE, () -> Kind.record(Place.class, Kind.STR, Kind.STR));
            refused(Status.USAGE, () -> Kind.record(Place.class, Kind.STR));
        }
    }

    @Test
    void dataOfOtherKindsAreRefused() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, Integer> tree = pool.tree("t", Kind.STR, Kind.U8);
            refused(Status.USAGE, () -> tree.put("a", 256));
            refused(Status.USAGE, () -> tree.put("a", -1));
            refused(Status.USAGE, () -> tree.put("\ud800", 1));
            assertThrows(NullPointerException.class, () -> tree.put(null, 1));
            assertThrows(NullPointerException.class, () -> tree.put("a", null));
            assertThrows(NullPointerException.class, () -> tree.get(null));
            Tree<Object, Object> any = pool.tree("t");
            refused(Status.USAGE, () -> any.put(1L, 1));
            refused(Status.USAGE, () -> any.put("a", "b"));
            refused(Status.USAGE, () -> pool.tree("t", Kind.BYTES, Kind.U8));
            refused(Status.USAGE, () -> pool.tree("j", Kind.JSON, Kind.U8));
            refused(Status.USAGE, () -> pool.tree("a\0b", Kind.STR, Kind.U8));
            refused(Status.USAGE, () -> Kind.parse("u63"));
            refused(Status.USAGE, () -> Kind.parse("(".repeat(100_000)));
            refused(Status.USAGE, () -> Kind.array(-1));
            refused(Status.USAGE, () -> pool.createTree("n", Kind.STR, Kind.U8, "sstree", Map.of("no such option", 1L)));
            BristleconeException error = assertThrows(BristleconeException.class,
                () -> tree.putMany(List.of("a", "x".repeat(16385), "b"), List.of(1, 2, 3)));
            assertTrue(error.done() <= 1);
            assertNull(tree.get("b"));
            refused(Status.USAGE, () -> tree.putMany(List.of("a"), List.of()));
        }
    }

    @Test
    void fieldsOfOptionsAreChecked() {
        refused(Status.USAGE, () -> new Options().maxBytes(0));
        refused(Status.USAGE, () -> new Options().recoveryThreads(-1));
        refused(Status.USAGE, () -> new Options().interval(Duration.ofNanos(1)));
    }

    @Test
    void closedHandlesAreRefused() {
        try (Temporary temporary = new Temporary()) {
            Pool pool = temporary.open();
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.U64);
            Tree<Long, Long> words = pool.tree("w", Kind.U64, Kind.U64);
            tree.put("a", 1L);
            Snapshot snapshot = pool.snapshot();
            Transaction transaction = pool.transaction();
            Batch batch = pool.batch();
            Iterator<Map.Entry<String, Long>> items = tree.scan().iterator();
            List<Executable> calls = List.of(() -> tree.get("a"), () -> tree.put("a", 1L), () -> tree.remove("a"), () -> tree.contains("a"), tree::size,
                tree::stats, tree::check, () -> tree.compareAndSwap("a", null, null), () -> tree.getMany(List.of("a")), () -> tree.removeMany(List.of("a")),
                () -> tree.putMany(Map.of("a", 1L)), () -> tree.scan().iterator().next(), () -> tree.prefix("a").iterator().next(), items::next,
                () -> tree.asMap().firstKey(), () -> snapshot.get(tree, "a"), () -> transaction.put(tree, "a", 1L), () -> batch.put(tree, "a", 1L),
                () -> snapshot.scan(tree).iterator().next());
            tree.close();
            tree.close();
            calls.forEach(call -> refused(Status.CLOSED, call));
            pool.close();
            pool.close();
            calls.forEach(call -> refused(Status.CLOSED, call));
            List<Executable> more = List.of(() -> words.get(1L), () -> words.put(1L, 1L), pool::trees, pool::info, pool::snapshot, pool::batch,
                pool::transaction, () -> pool.tree("u", Kind.STR, Kind.STR), pool::sync, () -> pool.dropTree("t"), snapshot::bytes, transaction::commit,
                batch::commit, pool::check);
            more.forEach(call -> refused(Status.CLOSED, call));
            snapshot.close();
            transaction.close();
            batch.close();
        }
    }

    @Test
    void objectsOfAnotherPoolAreRefused() {
        try (Temporary one = new Temporary(); Temporary two = new Temporary(); Pool pool = one.open(); Pool other = two.open()) {
            Tree<Long, Long> tree = pool.tree("t", Kind.U64, Kind.U64);
            refused(Status.USAGE, () -> other.transaction().put(tree, 1L, 1L));
            refused(Status.USAGE, () -> other.batch().put(tree, 1L, 1L));
            refused(Status.USAGE, () -> other.snapshot().get(tree, 1L));
        }
    }

    @Test
    void poolsThatCannotBeOpenedAreNamed() throws IOException, InterruptedException {
        try (Temporary temporary = new Temporary()) {
            refused(Status.ABSENT, () -> Pool.open(temporary.path(), new Options()));
            try (Pool pool = temporary.open()) {
                refused(Status.IN_USE, temporary::open);
                refused(Status.IN_USE, () -> Pool.open(temporary.path(), new Options(), Duration.ofMillis(30)));
                refused(Status.ABSENT, pool::journalStatus);
                refused(Status.USAGE, pool::checkpoint);
            }
            refused(Status.USAGE, () -> Pool.open(temporary.path(), new Options().createNew()));
            try (Pool pool = Pool.open(temporary.path(), new Options(), Duration.ofSeconds(1))) {
                assertTrue(pool.info().wasClean());
            }
            Files.writeString(temporary.path(), "no pool");
            refused(Status.CORRUPTED, () -> Pool.open(temporary.path(), new Options()));
        }
    }

    @Test
    void journalsAreSynced() throws IOException {
        Path folder = Files.createTempDirectory("bristlecone-java-");
        try (Temporary temporary = new Temporary(folder)) {
            Options how = new Options().create().maxBytes(Temporary.MAX_BYTES).domain(Options.Domain.JOURNAL)
                .durability(Options.Durability.INTERVAL).interval(Duration.ofMillis(50));
            try (Pool pool = Pool.open(temporary.path(), how)) {
                Tree<String, String> tree = pool.tree("t", Kind.STR, Kind.STR);
                tree.put("a", "b");
                pool.sync();
                Pool.JournalStatus status = pool.journalStatus();
                assertEquals(Options.Durability.INTERVAL, status.durability());
                assertEquals(Duration.ofMillis(50), status.interval());
                assertTrue(status.durableLsn() > 0 && !status.isFailed() && status.syncs() > 0);
                pool.checkpoint();
                pool.pruneJournal();
                assertTrue(pool.journalStatus().checkpointLsn() >= 0);
            }
        }
    }

    @Test
    void followersReadAndDoNotWrite() {
        try (Temporary temporary = new Temporary()) {
            Pool pool = temporary.open();
            pool.tree("t", Kind.STR, Kind.U64).put("a", 1L);
            try (Pool follower = Pool.open(temporary.path(), new Options().follow())) {
                Tree<String, Long> tree = follower.tree("t", Kind.STR, Kind.U64);
                assertEquals(1L, tree.get("a"));
                refused(Status.READ_ONLY, () -> tree.put("a", 2L));
                assertTrue(follower.info().isFollowing());
                pool.close();
                refused(Status.NO_WRITER, () -> tree.get("a"));
            }
        }
    }

    @Test
    void anExceptionRollsATransactionBack() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.U64);
            IllegalStateException mine = new IllegalStateException("mine");
            assertSame(mine, assertThrows(IllegalStateException.class, () -> pool.transact(transaction -> {
                transaction.put(tree, "a", 1L);
                throw mine;
            })));
            assertNull(tree.get("a"));
            refused(Status.CONFLICT, () -> pool.transact(transaction -> {
                transaction.get(tree, "n");
                tree.put("n", System.nanoTime());
                transaction.put(tree, "a", 1L);
                return null;
            }));
            assertNull(tree.get("a"));
        }
    }

    @Test
    void threadsCountInTransactions() throws Exception {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open(); ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.U64);
            tree.put("n", 0L);
            Callable<Void> work = () -> {
                for (int at = 0; at < 50; at++) {
                    pool.transact(transaction -> {
                        transaction.put(tree, "n", transaction.get(tree, "n") + 1);
                        return null;
                    });
                }
                return null;
            };
            for (Future<Void> done : threads.invokeAll(List.of(work, work, work, work))) {
                done.get();
            }
            assertEquals(200L, tree.get("n"));
        }
    }

    @Test
    void aSecondThreadInATransactionIsRefusedOrWaits() throws Exception {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open(); ExecutorService threads = Executors.newFixedThreadPool(4)) {
            Tree<Long, Long> tree = pool.tree("t", Kind.U64, Kind.U64);
            AtomicLong written = new AtomicLong();
            Transaction transaction = pool.transaction();
            List<Callable<Void>> work = new ArrayList<>();
            for (long thread = 0; thread < 4; thread++) {
                long first = thread * 1000;
                work.add(() -> {
                    for (long key = first; key < first + 200; key++) {
                        try {
                            transaction.put(tree, key, key);
                            written.incrementAndGet();
                        } catch (BristleconeException busy) {
                            assertEquals(Status.IN_USE, busy.status());
                        }
                    }
                    return null;
                });
            }
            for (Future<Void> done : threads.invokeAll(work)) {
                done.get();
            }
            transaction.commit();
            assertEquals(written.get(), tree.size());
        }
    }

    @Test
    void threadsCloseWhatOthersUse() throws Exception {
        for (int round = 0; round < 10; round++) {
            try (Temporary temporary = new Temporary(); ExecutorService threads = Executors.newFixedThreadPool(6)) {
                Pool pool = temporary.open();
                Tree<Long, Long> words = pool.tree("w", Kind.U64, Kind.U64);
                Tree<String, byte[]> texts = pool.tree("t", Kind.STR, Kind.BYTES);
                CountDownLatch started = new CountDownLatch(6);
                Callable<BristleconeException> work = () -> {
                    for (long key = 0;; key++) {
                        try {
                            words.put(key % 100, key);
                            texts.exchange("k" + key % 10, new byte[10]);
                            words.scan().limit(3).forEach(item -> assertTrue(item.getKey() < 100));
                        } catch (BristleconeException closed) {
                            return closed;
                        }
                        if (key == 20) {
                            started.countDown();
                        }
                    }
                };
                List<Future<BristleconeException>> running = new ArrayList<>();
                for (int thread = 0; thread < 6; thread++) {
                    running.add(threads.submit(work));
                }
                started.await();
                words.close();
                pool.close();
                for (Future<BristleconeException> one : running) {
                    assertEquals(Status.CLOSED, one.get().status(), () -> one.resultNow().getMessage());
                }
            }
        }
    }

    @Test
    void anInterruptedThreadFinishesItsCallAndStaysInterrupted() throws Exception {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.U64);
            Thread.currentThread().interrupt();
            tree.put("a", 1L);
            assertEquals(1L, tree.get("a"));
            pool.sync();
            assertTrue(Thread.interrupted());
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> Pool.open(temporary.path(), new Options(), Duration.ofSeconds(5)));
        }
    }

    /** Opens a pool whose objects become unreachable. */
    private static void abandon(Path path) {
        Pool pool = Pool.open(path, new Options().create().maxBytes(Temporary.MAX_BYTES));
        Tree<Long, Long> tree = pool.tree("t", Kind.U64, Kind.U64);
        pool.snapshot();
        pool.transaction();
        tree.scan().iterator().hasNext();
        for (long key = 0; key < 1000; key++) {
            if (key % 100 == 0) {
                System.gc();
            }
            tree.put(key, key);
        }
    }

    @Test
    void unreachableHandlesAreClosed() throws InterruptedException {
        try (Temporary temporary = new Temporary()) {
            abandon(temporary.path());
            for (int attempt = 0;; attempt++) {
                System.gc();
                try (Pool pool = Pool.open(temporary.path(), new Options())) {
                    assertEquals(1000, pool.tree("t", Kind.U64, Kind.U64).size());
                    return;
                } catch (BristleconeException inUse) {
                    assertEquals(Status.IN_USE, inUse.status());
                    assertTrue(attempt < 1000, "the pool stays open");
                }
                Thread.sleep(10);
            }
        }
    }

    @Test
    void garbageCollectionSparesHandlesInUse() throws InterruptedException {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Thread collector = Thread.ofPlatform().daemon().start(() -> {
                while (!Thread.interrupted()) {
                    System.gc();
                }
            });
            for (long key = 0; key < 80; key++) {
                pool.tree("t", Kind.U64, Kind.U64).put(key, key);
                assertEquals(key, pool.snapshot().get(pool.tree("t", Kind.U64, Kind.U64), key));
                assertEquals(key + 1, pool.tree("t", Kind.U64, Kind.U64).scan().stream().count());
                pool.batch().put(pool.tree("t", Kind.U64, Kind.U64), key, key).commit();
            }
            collector.interrupt();
            collector.join();
        }
    }

    @Test
    void aKilledWriterLosesNothing() throws IOException, InterruptedException {
        for (int round = 0; round < 2; round++) {
            try (Temporary temporary = new Temporary()) {
                String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
                Process writer = new ProcessBuilder(java, "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path"),
                    "bristlecone.Writer", temporary.path().toString()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
                long acknowledged = 0;
                try (BufferedReader lines = writer.inputReader()) {
                    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                        acknowledged = Math.max(acknowledged, line.isEmpty() ? 0 : Long.parseLong(line) + 1);
                        if (acknowledged == 1000 + 777 * round) {
                            // This leaves the pipe open.
                            writer.toHandle().destroyForcibly();
                        }
                    }
                } catch (NumberFormatException cut) {
                    // The last line was not complete.
                }
                assertEquals(137, writer.waitFor());
                verify(temporary.path(), acknowledged);
            }
        }
    }

    private static void verify(Path path, long acknowledged) {
        assertTrue(acknowledged >= 1000);
        try (Pool pool = Pool.open(path, new Options())) {
            assertFalse(pool.info().wasClean());
            Tree<Long, Long> words = pool.tree("words", Kind.U64, Kind.U64);
            Tree<String, byte[]> texts = pool.tree("texts", Kind.STR, Kind.BYTES);
            for (long number = 0; number < acknowledged; number++) {
                assertEquals(~number, words.get(number));
                assertEquals(number % 100, texts.get("item " + number).length);
            }
            assertTrue(words.size() <= acknowledged + 1, () -> words.size() + " words");
            assertEquals(List.of(), pool.check());
            assertEquals(List.of(), words.check());
            assertEquals(List.of(), texts.check());
        }
    }

    @Test
    void ordersAreThoseOfTrees() {
        assertTrue(Kind.STR.comparator().compare("\uff5e", "\ud83d\ude00") < 0);
        assertTrue(Kind.U64.comparator().compare(1L, -1L) < 0);
        assertTrue(Kind.F64.comparator().compare(-0.0, 0.0) < 0);
        assertTrue(Kind.F64.comparator().compare(Double.NEGATIVE_INFINITY, -1.0) < 0);
        assertTrue(Kind.F32.comparator().compare(Float.NaN, Float.POSITIVE_INFINITY) > 0);
        assertTrue(Kind.option(Kind.STR).comparator().compare(Optional.empty(), Optional.of("")) < 0);
    }

    @Test
    void rangesAreRemovedInOneStep() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.U64);
            for (String key : List.of("a", "ab", "abc", "b", "c", "d", "e", "f")) {
                tree.put(key, 1L);
            }
            refused(Status.USAGE, () -> tree.scan().limit(1).remove());
            refused(Status.USAGE, () -> tree.prefix("a").before("b").remove());
            try (Snapshot snapshot = pool.snapshot(); Transaction transaction = pool.transaction()) {
                refused(Status.USAGE, () -> snapshot.scan(tree).remove());
                refused(Status.USAGE, () -> transaction.scan(tree).remove());
            }
            assertEquals(2, tree.prefix("ab").remove());
            assertEquals(2, tree.scan().after("a").through("c").reverse().remove());
            assertEquals(0, tree.scan().from("x").remove());
            tree.asMap().subMap("d", true, "f", false).clear();
            assertEquals(List.of("a", "f"), tree.scan().stream().map(Map.Entry::getKey).toList());
            tree.asMap().descendingMap().clear();
            assertEquals(0, tree.size());
            Tree<Long, Long> words = pool.tree("w", Kind.U64, Kind.U64);
            refused(Status.USAGE, () -> words.prefix(1L).remove());
        }
    }

    @Test
    void longScansComeInChunks() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, byte[]> tree = pool.tree("t", Kind.STR, Kind.BYTES);
            Map<String, byte[]> items = new LinkedHashMap<>();
            for (int key = 0; key < 5000; key++) {
                items.put(String.format("%05d", key), new byte[key % 300]);
            }
            tree.putMany(items);
            List<String> keys = new ArrayList<>(items.keySet());
            assertEquals(keys, tree.scan().stream().map(Map.Entry::getKey).toList());
            assertEquals(keys.reversed(), tree.scan().reverse().stream().map(Map.Entry::getKey).toList());
            assertEquals(keys.subList(100, 4000), tree.scan().from("00100").before("04000").stream().map(Map.Entry::getKey).toList());
            assertEquals(keys.subList(1000, 2000), tree.prefix("01").stream().map(Map.Entry::getKey).toList());
            assertEquals(keys.subList(1000, 2000).reversed(), tree.prefix("01").reverse().stream().map(Map.Entry::getKey).toList());
            assertEquals(keys.subList(0, 3000), pool.transact(transaction -> transaction.scan(tree).limit(3000).stream().map(Map.Entry::getKey).toList()));
            tree.scan().forEach(item -> assertArrayEquals(items.get(item.getKey()), item.getValue()));
            byte[] large = new byte[100_000];
            Arrays.fill(large, (byte) 7);
            tree.put("large", large);
            assertArrayEquals(large, tree.get("large"));
            assertArrayEquals(large, tree.exchange("large", new byte[0]));
        }
    }

    private static void damage(Path path) throws IOException {
        byte[] content = Files.readAllBytes(path);
        byte[] value = "damage me 0300".getBytes(StandardCharsets.UTF_8);
        for (int at = 0; at + 65 < content.length; at++) {
            if (Arrays.equals(content, at, at + value.length, value, 0, value.length)) {
                content[at + 20] ^= 1;
            }
        }
        Files.write(path, content);
    }

    /** Damage is an error, of lookups, scans and checks, and never an absent key or an early end. */
    @Test
    void damageIsAnError() throws IOException {
        for (String design : ConformanceTest.DESIGNS) {
            try (Temporary temporary = new Temporary()) {
                try (Pool pool = temporary.open()) {
                    Tree<Long, String> tree = pool.createTree("t", Kind.U64, Kind.STR, design, Map.of());
                    for (long key = 0; key < 500; key++) {
                        tree.put(key, String.format("damage me %04d %050d", key, key));
                    }
                }
                damage(temporary.path());
                try (Pool pool = Pool.open(temporary.path(), new Options())) {
                    Tree<Long, String> tree = pool.tree("t", Kind.U64, Kind.STR);
                    refused(Status.CORRUPTED, () -> tree.get(300L));
                    refused(Status.CORRUPTED, () -> tree.scan().stream().count());
                    refused(Status.CORRUPTED, () -> tree.asMap().forEach((key, value) -> assertTrue(key < 300)));
                    assertEquals(65, tree.get(301L).length());
                    assertFalse(tree.check().isEmpty());
                }
            }
        }
    }

    @Test
    void designsAreNamed() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            for (String design : ConformanceTest.DESIGNS) {
                Tree<Long, Long> tree = pool.createTree(design, Kind.U64, Kind.U64, design, Map.of());
                tree.put(1L, 2L);
                Tree.Stats stats = tree.stats();
                assertEquals(design, stats.design());
                assertTrue(stats.items() == 1 && stats.poolBytes() > 0);
            }
        }
    }
}
