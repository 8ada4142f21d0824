package bristlecone;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentNavigableMap;
import org.junit.jupiter.api.Test;

/** Compares maps over trees of every design with maps of the language. */
class TreeViewTest {
    private static final int KEYS = 60;
    private static final int STEPS = 300;

    @Test
    void viewsEqualMapsOfTheLanguage() {
        for (String design : ConformanceTest.DESIGNS) {
            try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
                Tree<Integer, String> tree = pool.createTree("t", Kind.I32, Kind.STR, design, Map.of());
                Random random = new Random(7);
                compare(tree.asMap(), new TreeMap<>(), random);
                compare(tree.asMap().descendingMap(), new TreeMap<>(tree.asMap()).descendingMap(), random);
                NavigableMap<Integer, String> inside = new TreeMap<>(tree.asMap()).subMap(10, false, 40, true);
                compare(tree.asMap().subMap(10, false, 40, true), inside, random);
                compare(tree.asMap().descendingMap().subMap(35, true, 12, false), new TreeMap<>(tree.asMap()).descendingMap().subMap(35, true, 12, false), random);
                compare(tree.asMap().tailMap(20).headMap(30), new TreeMap<>(tree.asMap()).tailMap(20).headMap(30), random);
            }
        }
    }

    /** Makes the same calls on both. */
    private static void compare(ConcurrentNavigableMap<Integer, String> view, java.util.SortedMap<Integer, String> map, Random random) {
        NavigableMap<Integer, String> model = (NavigableMap<Integer, String>) map;
        for (int step = 0; step < STEPS; step++) {
            Integer key = random.nextInt(KEYS);
            String value = "v" + random.nextInt(3);
            int what = random.nextInt(9);
            assertEquals(outcome(model, what, key, value), outcome(view, what, key, value), () -> what + " " + key);
            assertEquals(model.lowerEntry(key), view.lowerEntry(key));
            assertEquals(model.floorKey(key), view.floorKey(key));
            assertEquals(model.ceilingEntry(key), view.ceilingEntry(key));
            assertEquals(model.higherKey(key), view.higherKey(key));
            assertEquals(model.containsKey(key), view.containsKey(key));
            assertEquals(model.get(key), view.get(key));
        }
        assertEquals(model, view);
        assertEquals(model.hashCode(), view.hashCode());
        assertEquals(new ArrayList<>(model.entrySet()), new ArrayList<>(view.entrySet()));
        assertEquals(new ArrayList<>(model.descendingKeySet()), new ArrayList<>(view.descendingKeySet()));
        assertEquals(new ArrayList<>(model.navigableKeySet().headSet(25, true)), within(() -> new ArrayList<>(view.navigableKeySet().headSet(25, true)), model));
        assertEquals(model.size(), view.size());
        assertEquals(model.firstEntry(), view.firstEntry());
        assertEquals(model.lastEntry(), view.lastEntry());
        assertEquals(model.isEmpty(), view.isEmpty());
    }

    private static <T> T within(java.util.function.Supplier<T> of, Object model) {
        try {
            return of.get();
        } catch (IllegalArgumentException outside) {
            throw new AssertionError("outside of " + model, outside);
        }
    }

    private static Object outcome(NavigableMap<Integer, String> map, int what, Integer key, String value) {
        try {
            return switch (what) {
                case 0 -> map.remove(key);
                case 1 -> map.putIfAbsent(key, value);
                case 2 -> map.replace(key, value);
                case 3 -> map.replace(key, "v1", value);
                case 4 -> map.remove(key, value);
                case 5 -> map.merge(key, value, (old, given) -> old.equals(given) ? null : given);
                case 6 -> map.computeIfPresent(key, (it, old) -> value + it % 2);
                case 7 -> key % 10 == 0 ? map.pollFirstEntry() : null;
                default -> map.put(key, value);
            };
        } catch (IllegalArgumentException outside) {
            return "outside";
        }
    }

    @Test
    void viewsWriteToTheTree() {
        try (Temporary temporary = new Temporary(); Pool pool = temporary.open()) {
            Tree<String, Long> tree = pool.tree("t", Kind.STR, Kind.I64);
            ConcurrentNavigableMap<String, Long> map = tree.asMap();
            map.putAll(Map.of("a", 1L, "b", 2L, "c", 3L));
            map.entrySet().iterator().next().setValue(9L);
            assertEquals(9L, tree.get("a"));
            map.keySet().remove("b");
            map.values().remove(3L);
            assertEquals(List.of("a"), List.copyOf(map.keySet()));
            map.subMap("b", "z").clear();
            assertEquals(1, map.size());
            map.clear();
            assertTrue(map.isEmpty());
            assertNull(map.firstEntry());
            assertThrows(NoSuchElementException.class, map::firstKey);
            assertThrows(NullPointerException.class, () -> map.put(null, 1L));
            assertThrows(NullPointerException.class, () -> map.put("a", null));
            assertThrows(IllegalArgumentException.class, () -> map.headMap("b").put("c", 1L));
            assertThrows(IllegalArgumentException.class, () -> map.headMap("b").tailMap("c"));
            assertThrows(IllegalArgumentException.class, () -> map.subMap("b", "a"));
            assertThrows(BristleconeException.class, () -> map.get(1L));
            assertFalse(map.descendingMap().containsKey("a"));
            tree.close();
            assertThrows(BristleconeException.class, () -> map.get("a"));
        }
    }
}
