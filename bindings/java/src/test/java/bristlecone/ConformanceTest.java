package bristlecone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;

/** Runs the table of all languages for every design. */
class ConformanceTest {
    static final List<String> DESIGNS = List.of("sstree", "nbtree", "cclbtree", "lodgetree", "wotree");
    private static final int CASES_MIN = 100;

    @Test
    void theTableHoldsForEveryDesign() throws IOException {
        int ran = 0;
        try (Stream<Path> files = Files.list(Path.of("../conformance"))) {
            for (Path file : files.filter(it -> it.toString().endsWith(".json")).sorted().toList()) {
                JsonObject table = JsonParser.parseString(Files.readString(file)).getAsJsonObject();
                for (JsonElement it : table.getAsJsonArray("cases")) {
                    for (String design : DESIGNS) {
                        run(file.getFileName() + ": " + it.getAsJsonObject().get("name").getAsString() + ", " + design, it.getAsJsonObject(), design);
                        ran++;
                    }
                }
            }
        }
        assertTrue(ran >= CASES_MIN * DESIGNS.size(), () -> "too few cases ran");
    }

    private static void run(String name, JsonObject of, String design) {
        try (Temporary temporary = new Temporary(); Runner runner = new Runner(temporary, design, needs(of, "changes"))) {
            for (JsonElement element : of.getAsJsonArray("steps")) {
                Step step = new Step(element.getAsJsonObject());
                Outcome outcome = runner.outcome(step);
                assertEquals(step.text("is", "ok"), outcome.status, () -> name + ": " + element + " returned " + outcome);
                String problem = runner.difference(step, outcome.gives);
                assertTrue(problem.isEmpty(), () -> name + ": " + element + ": " + problem);
            }
        }
    }

    private static boolean needs(JsonObject of, String feature) {
        return of.has("needs") && all(of.getAsJsonArray("needs")).stream().anyMatch(it -> it.getAsString().equals(feature));
    }

    /** An item of a tree. */
    record Item(Object key, Object value) {
    }

    /** A value that was returned, or none. */
    record Value(Object data) {
    }

    /** What an operation returned: a status of the table, and null, a value, a list, a number or a boolean. */
    record Outcome(String status, Object gives) {
        static final Outcome DONE = new Outcome("ok", null);

        static Outcome ofFound(Object value) {
            return value == null ? new Outcome("absent", null) : new Outcome("ok", new Value(value));
        }

        static Object held(Object value) {
            return value == null ? null : new Value(value);
        }
    }

    /** A step of the table. */
    record Step(JsonObject of) {
        String text(String name, String otherwise) {
            return of.has(name) ? of.get(name).getAsString() : otherwise;
        }

        String name(String name) {
            return Objects.requireNonNull(text(name, null), name);
        }

        boolean is(String name) {
            return of.has(name) && of.get(name).getAsBoolean();
        }

        Object datum(String name, Kind<?> kind) {
            return of.has(name) ? parse(kind.name(), of.get(name)) : null;
        }

        List<JsonElement> list(String name) {
            return of.has(name) ? all(of.getAsJsonArray(name)) : List.of();
        }
    }

    private static List<JsonElement> all(JsonArray array) {
        return StreamSupport.stream(array.spliterator(), false).toList();
    }

    static Object parse(String kind, JsonElement value) {
        if (value.isJsonObject()) {
            JsonObject object = value.getAsJsonObject();
            if (object.has("kind")) {
                return parse(object.get("kind").getAsString(), object.get("datum"));
            }
            return ofText(kind, object.get("repeat").getAsString().repeat(object.get("times").getAsInt()));
        }
        if (kind.startsWith("Option<")) {
            return value.isJsonNull() ? Optional.empty() : Optional.of(parse(kind.substring(7, kind.length() - 1), value.getAsJsonArray().get(0)));
        }
        if (kind.startsWith("Expiring<")) {
            JsonArray pair = value.getAsJsonArray();
            return List.of(parse("u64", pair.get(0)), parse(kind.substring(9, kind.length() - 1), pair.get(1)));
        }
        if (kind.startsWith("(") && !kind.equals("()")) {
            List<Object> elements = new ArrayList<>();
            List<String> kinds = elementsOf(kind);
            for (int at = 0; at < kinds.size(); at++) {
                elements.add(parse(kinds.get(at), value.getAsJsonArray().get(at)));
            }
            return elements;
        }
        return switch (kind) {
            case "()" -> Kind.Unit.UNIT;
            case "bool" -> value.getAsBoolean();
            default -> ofText(kind, value.getAsString());
        };
    }

    private static List<String> elementsOf(String kind) {
        String inside = kind.substring(1, kind.length() - (kind.endsWith(",)") ? 2 : 1));
        List<String> kinds = new ArrayList<>();
        int depth = 0;
        int begin = 0;
        for (int at = 0; at < inside.length(); at++) {
            char it = inside.charAt(at);
            depth += "(<[".indexOf(it) >= 0 ? 1 : ")>]".indexOf(it) >= 0 ? -1 : 0;
            if (it == ',' && depth == 0) {
                kinds.add(inside.substring(begin, at));
                begin = at + 2;
            }
        }
        kinds.add(inside.substring(begin));
        return kinds;
    }

    private static Object ofText(String kind, String text) {
        boolean isBits = text.startsWith("0x");
        return switch (kind) {
            case "str", "json" -> text;
            case "char" -> text.codePointAt(0);
            case "f32" -> isBits ? Float.intBitsToFloat(Integer.parseUnsignedInt(text.substring(2), 16)) : (Object) Float.parseFloat(text);
            case "f64" -> isBits ? Double.longBitsToDouble(Long.parseUnsignedLong(text.substring(2), 16)) : (Object) Double.parseDouble(text);
            case "u8", "u16", "i32" -> Integer.parseInt(text);
            case "u32", "i64" -> Long.parseLong(text);
            case "u64" -> Long.parseUnsignedLong(text);
            case "i8" -> Byte.parseByte(text);
            case "i16" -> Short.parseShort(text);
            case "u128", "i128" -> new BigInteger(text);
            default -> HexFormat.of().parseHex(text);
        };
    }

    /** The open objects of a case. */
    static final class Runner implements AutoCloseable {
        private final Temporary temporary;
        private final String design;
        private final Map<String, Tree<Object, Object>> trees = new HashMap<>();
        private final Map<String, ExpiringTree<Object, Object>> expiring = new HashMap<>();
        private final Map<String, Transaction> transactions = new HashMap<>();
        private final Map<String, Snapshot> snapshots = new HashMap<>();
        private Pool pool;

        Runner(Temporary temporary, String design, boolean hasJournal) {
            this.temporary = temporary;
            this.design = design;
            pool = hasJournal ? temporary.openJournal() : temporary.open();
        }

        @Override
        public void close() {
            pool.close();
        }

        Outcome outcome(Step step) {
            try {
                return run(step);
            } catch (BristleconeException error) {
                String status = error.status() == Status.CLOSED ? "usage" : error.status().name().toLowerCase(Locale.ROOT);
                return new Outcome(status, null);
            }
        }

        private Tree<Object, Object> tree(Step step) {
            return Objects.requireNonNull(trees.get(step.name("on")));
        }

        private Outcome run(Step step) {
            if (step.of.has("in")) {
                return within(step, tree(step), transactions.get(step.name("in")), snapshots.get(step.name("in")));
            }
            switch (step.name("do")) {
                case "batch" -> batch(step);
                case "begin" -> transactions.put(step.name("as"), pool.transaction());
                case "commit" -> transactions.get(step.name("of")).commit();
                case "rollback" -> transactions.get(step.name("of")).close();
                case "snapshot" -> snapshots.put(step.name("as"), pool.snapshot());
                case "release" -> snapshots.get(step.name("of")).close();
                case "create", "open", "expiring", "close", "drop", "rename", "clear", "close_pool", "reopen", "check" -> manage(step, step.text("on", ""));
                case "changes" -> {
                    return new Outcome("ok", commits());
                }
                case "trees" -> {
                    List<String> names = pool.trees().stream().map(it -> List.of(it.name(), it.keyKind(), it.valueKind()).toString()).sorted().toList();
                    return new Outcome("ok", names.toString());
                }
                default -> {
                    ExpiringTree<Object, Object> live = expiring.get(step.name("on"));
                    return live == null ? onTree(step, tree(step)) : ExpiringSteps.run(step, live);
                }
            }
            return Outcome.DONE;
        }

        private void manage(Step step, String name) {
            switch (step.name("do")) {
                case "create" -> trees.put(name, pool.createTree(name, kind(step.name("key_kind")), kind(step.name("value_kind")),
                    step.text("design", design), Map.of(), Duration.ofMillis(Long.parseLong(step.text("expire_after", "0")))));
                case "expiring" -> {
                    String inner = trees.get(name).valueKind().name().replaceFirst("^Expiring<(.*)>$", "$1");
                    ExpiringTree<Object, Object> live = new ExpiringTree<>(trees.get(name), kind(inner));
                    expiring.put(step.name("as"), live);
                    trees.put(step.name("as"), live.live());
                }
                case "open" -> trees.put(name, open(step, name));
                case "close" -> trees.get(name).close();
                case "drop" -> pool.dropTree(name);
                case "rename" -> pool.renameTree(name, step.name("to"));
                case "clear" -> pool.clearTree(name);
                case "close_pool" -> pool.close();
                case "check" -> {
                    assertEquals(List.of(), pool.check());
                    trees.values().forEach(tree -> assertEquals(List.of(), tree.check()));
                }
                default -> {
                    pool.close();
                    trees.clear();
                    expiring.clear();
                    pool = Pool.open(temporary.path(), step.is("read_only") ? new Options().readOnly() : new Options());
                }
            }
        }

        @SuppressWarnings("unchecked")
        private static Kind<Object> kind(String name) {
            return (Kind<Object>) Kind.parse(name);
        }

        private Tree<Object, Object> open(Step step, String name) {
            return step.of.has("key_kind") ? pool.tree(name, kind(step.name("key_kind")), kind(step.name("value_kind"))) : pool.tree(name);
        }

        /** The durable commits so far. */
        record Commits(List<Changes.Commit> all) {
        }

        private Commits commits() {
            try (Changes changes = pool.changes(0)) {
                return new Commits(changes.stream().toList());
            }
        }

        private static boolean equal(Step step, List<Changes.Commit> commits, JsonArray wanted) {
            boolean isEqual = commits.size() == wanted.size();
            for (int at = 0; isEqual && at < commits.size(); at++) {
                List<Changes.Change> changes = commits.get(at).changes();
                JsonArray of = wanted.get(at).getAsJsonArray();
                isEqual = changes.size() == of.size();
                for (int change = 0; isEqual && change < changes.size(); change++) {
                    isEqual = equal(step, changes.get(change), new Step(of.get(change).getAsJsonObject()));
                }
            }
            return isEqual;
        }

        private static boolean equal(Step step, Changes.Change change, Step wanted) {
            Optional<Boolean> existed = wanted.of.has("existed") ? Optional.of(wanted.is("existed")) : Optional.empty();
            return change.what().name().equalsIgnoreCase(wanted.name("what")) && change.tree().equals(wanted.name("tree"))
                && change.existed().equals(existed) && Objects.equals(change.renamedTo(), wanted.text("renamed_to", null))
                && equal(step.text("key_kind", "()"), change.keyKind(), change.key(), wanted, "key")
                && equal(step.text("value_kind", "()"), change.valueKind(), change.value(), wanted, "value");
        }

        private static boolean equal(String kind, String found, Object datum, Step wanted, String name) {
            if (datum == null || !wanted.of.has(name)) {
                return datum == null && !wanted.of.has(name);
            }
            return kind.equals(found) && equal(kind(kind), datum, parse(kind, wanted.of.get(name)));
        }

        private void batch(Step step) {
            try (Batch batch = pool.batch()) {
                for (JsonElement element : step.list("changes")) {
                    Step change = new Step(element.getAsJsonObject());
                    Tree<Object, Object> tree = tree(change);
                    Object key = change.datum("key", tree.keyKind());
                    Object value = change.datum("value", tree.valueKind());
                    switch (change.name("do")) {
                        case "put" -> batch.put(tree, key, value);
                        case "remove" -> batch.remove(tree, key);
                        default -> {
                            if (value == null) {
                                batch.expectAbsent(tree, key);
                            } else {
                                batch.expect(tree, key, value);
                            }
                        }
                    }
                }
                batch.commit();
            }
        }

        private static Outcome within(Step step, Tree<Object, Object> tree, Transaction transaction, Snapshot snapshot) {
            Object key = step.datum("key", tree.keyKind());
            switch (step.name("do")) {
                case "get" -> {
                    return Outcome.ofFound(snapshot == null ? transaction.get(tree, key) : snapshot.get(tree, key));
                }
                case "scan" -> {
                    return scan(step, tree, snapshot == null ? transaction.scan(tree) : snapshot.scan(tree));
                }
                case "put" -> transaction.put(tree, key, step.datum("value", tree.valueKind()));
                default -> transaction.remove(tree, key);
            }
            return Outcome.DONE;
        }

        static Outcome scan(Step step, Tree<Object, Object> tree, Scan<Object, Object> all) {
            List<Item> items = within(step, tree, all).stream().map(it -> new Item(it.getKey(), it.getValue())).toList();
            return new Outcome("ok", items);
        }

        private static Scan<Object, Object> within(Step step, Tree<Object, Object> tree, Scan<Object, Object> all) {
            Scan<Object, Object> scan = all;
            Object from = step.datum("from", tree.keyKind());
            Object end = step.datum("end", tree.keyKind());
            if (from != null) {
                scan = step.is("from_excluded") ? scan.after(from) : scan.from(from);
            }
            if (end != null) {
                scan = step.is("end_included") ? scan.through(end) : scan.before(end);
            }
            scan = step.is("reverse") ? scan.reverse() : scan;
            return step.of.has("limit") ? scan.limit(step.of.get("limit").getAsLong()) : scan;
        }

        private static Outcome onTree(Step step, Tree<Object, Object> tree) {
            Object key = step.datum("key", tree.keyKind());
            Object value = step.datum("value", tree.valueKind());
            switch (step.name("do")) {
                case "get" -> {
                    return Outcome.ofFound(tree.get(key));
                }
                case "contains" -> {
                    return new Outcome("ok", tree.contains(key));
                }
                case "len" -> {
                    return new Outcome("ok", tree.size());
                }
                case "exchange" -> {
                    return new Outcome("ok", Outcome.held(tree.exchange(key, value)));
                }
                case "update" -> {
                    return Outcome.ofFound(tree.update(key, value));
                }
                case "remove" -> {
                    return Outcome.ofFound(tree.remove(key));
                }
                case "insert" -> {
                    Object present = tree.insert(key, value);
                    return new Outcome(present == null ? "ok" : "present", Outcome.held(present));
                }
                case "compare_and_swap" -> {
                    Tree.Swap<Object> swap = tree.compareAndSwap(key, step.datum("expected", tree.valueKind()), step.datum("wanted", tree.valueKind()));
                    return new Outcome(swap.swapped() ? "ok" : "differs", Outcome.held(swap.found().orElse(null)));
                }
                case "scan" -> {
                    return scan(step, tree, tree.scan());
                }
                case "prefix" -> {
                    return scan(step, tree, tree.prefix(step.datum("prefix", tree.keyKind())));
                }
                case "remove_range" -> {
                    return new Outcome("ok", within(step, tree, tree.scan()).remove());
                }
                case "remove_prefix" -> {
                    return new Outcome("ok", tree.prefix(step.datum("prefix", tree.keyKind())).remove());
                }
                default -> {
                    return many(step, tree, key, value);
                }
            }
        }

        private static Outcome many(Step step, Tree<Object, Object> tree, Object key, Object value) {
            List<Object> keys = step.list("keys").stream().map(it -> parse(tree.keyKind().name(), it)).toList();
            switch (step.name("do")) {
                case "put" -> tree.put(key, value);
                case "remove_many" -> tree.removeMany(keys);
                case "put_many" -> {
                    List<Item> items = items(step.list("items"), tree);
                    tree.putMany(items.stream().map(Item::key).toList(), items.stream().map(Item::value).toList());
                }
                case "get_many" -> {
                    return new Outcome("ok", tree.getMany(keys).stream().map(Value::new).toList());
                }
                default -> fail("an unknown operation: " + step);
            }
            return Outcome.DONE;
        }

        private static List<Item> items(List<JsonElement> of, Tree<Object, Object> tree) {
            return of.stream().map(JsonElement::getAsJsonArray)
                .map(it -> new Item(parse(tree.keyKind().name(), it.get(0)), parse(tree.valueKind().name(), it.get(1)))).toList();
        }

        /** Returns the difference of a result from the table, or nothing. */
        String difference(Step step, Object gives) {
            JsonElement wanted = step.of.get("gives");
            if (gives == null) {
                return wanted == null ? "" : "nothing was returned";
            }
            Tree<Object, Object> tree = trees.get(step.text("on", ""));
            boolean isEqual = switch (gives) {
                case Value it -> wanted != null && equal(tree.valueKind(), it.data, parse(tree.valueKind().name(), wanted));
                case List<?> list -> wanted != null && equal(list, wanted.getAsJsonArray(), tree);
                case Commits(List<Changes.Commit> commits) -> equal(step, commits, wanted.getAsJsonArray());
                case Long number -> number == wanted.getAsLong();
                case JsonArray form -> form.toString().equals(wanted.toString());
                case Boolean it -> it == wanted.getAsBoolean();
                default -> gives.equals(all(wanted.getAsJsonArray()).stream().map(it -> all(it.getAsJsonArray()).stream().map(JsonElement::getAsString)
                    .toList().toString()).toList().toString());
            };
            return isEqual ? "" : "returned " + gives;
        }

        private static boolean equal(List<?> gives, JsonArray wanted, Tree<Object, Object> tree) {
            if (gives.size() != wanted.size()) {
                return false;
            }
            for (int at = 0; at < gives.size(); at++) {
                boolean isEqual = switch (gives.get(at)) {
                    case Value(Object none) when none == null -> wanted.get(at).isJsonObject() && wanted.get(at).getAsJsonObject().has("absent");
                    case Value(Object it) -> equal(tree.valueKind(), it, parse(tree.valueKind().name(), wanted.get(at)));
                    case Item(Object key, Object value) -> equal(tree.keyKind(), key, parse(tree.keyKind().name(), wanted.get(at).getAsJsonArray().get(0)))
                        && equal(tree.valueKind(), value, parse(tree.valueKind().name(), wanted.get(at).getAsJsonArray().get(1)));
                    default -> false;
                };
                if (!isEqual) {
                    return false;
                }
            }
            return true;
        }

        /** Compares by the order of the kind, in which every NaN is equal only to itself. */
        private static boolean equal(Kind<Object> kind, Object one, Object other) {
            return kind.comparator().compare(one, other) == 0;
        }
    }

    @Test
    void elementsOfKindsAreSplit() {
        assertEquals(List.of("str", "Option<(u64, [u8; 4])>"), elementsOf("(str, Option<(u64, [u8; 4])>)"));
        assertEquals(List.of("u64"), elementsOf("(u64,)"));
        assertEquals(Optional.empty(), parse("Option<u8>", JsonNull.INSTANCE));
    }
}
