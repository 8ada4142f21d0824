package bristlecone;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableSet;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.ConcurrentNavigableMap;

/** A map that reads and writes a tree, or a range of its keys, in either order. */
final class TreeView<K, V> extends AbstractMap<K, V> implements ConcurrentNavigableMap<K, V> {
    /** An end of a range; null is none. */
    private record Bound<K>(K key, boolean isIncluded) {
    }

    private final Tree<K, V> tree;
    private final Bound<K> low;
    private final Bound<K> high;
    private final boolean isDescending;

    TreeView(Tree<K, V> tree) {
        this(tree, null, null, false);
    }

    private TreeView(Tree<K, V> tree, Bound<K> low, Bound<K> high, boolean isDescending) {
        this.tree = tree;
        this.low = low;
        this.high = high;
        this.isDescending = isDescending;
    }

    private Comparator<K> ascending() {
        return tree.keys().comparator();
    }

    /** Returns the items in the order of the tree. */
    private Scan<K, V> items() {
        Scan<K, V> items = tree.scan();
        if (low != null) {
            items = low.isIncluded ? items.from(low.key) : items.after(low.key);
        }
        if (high != null) {
            items = high.isIncluded ? items.through(high.key) : items.before(high.key);
        }
        return items;
    }

    /** Returns the items in the order of this map. */
    private Scan<K, V> inOrder() {
        return isDescending ? items().reverse() : items();
    }

    private boolean isTooLow(K key) {
        int compared = low == null ? 1 : ascending().compare(key, low.key);
        return compared < 0 || compared == 0 && !low.isIncluded;
    }

    private boolean isTooHigh(K key) {
        int compared = high == null ? -1 : ascending().compare(key, high.key);
        return compared > 0 || compared == 0 && !high.isIncluded;
    }

    private boolean isInside(K key) {
        return !isTooLow(key) && !isTooHigh(key);
    }

    @SuppressWarnings("unchecked")
    private K key(Object key) {
        K typed = (K) Objects.requireNonNull(key);
        // Refuses keys of other types.
        tree.keys().encode(typed);
        return typed;
    }

    private K inside(K key) {
        if (!isInside(key(key))) {
            throw new IllegalArgumentException("the key is outside of the range of this map");
        }
        return key;
    }

    @SuppressWarnings("unchecked")
    private V value(Object value) {
        return (V) Objects.requireNonNull(value);
    }

    @Override
    public V get(Object key) {
        K typed = key(key);
        return isInside(typed) ? tree.get(typed) : null;
    }

    @Override
    public boolean containsKey(Object key) {
        K typed = key(key);
        return isInside(typed) && tree.contains(typed);
    }

    @Override
    public V put(K key, V value) {
        return tree.exchange(inside(key), value(value));
    }

    @Override
    public V remove(Object key) {
        K typed = key(key);
        return isInside(typed) ? tree.remove(typed) : null;
    }

    @Override
    public V putIfAbsent(K key, V value) {
        return tree.insert(inside(key), value(value));
    }

    @Override
    public boolean remove(Object key, Object value) {
        K typed = key(key);
        return isInside(typed) && tree.compareAndSwap(typed, value(value), null).swapped();
    }

    @Override
    public boolean replace(K key, V old, V value) {
        return isInside(key(key)) && tree.compareAndSwap(key, value(old), value(value)).swapped();
    }

    @Override
    public V replace(K key, V value) {
        return isInside(key(key)) ? tree.update(key, value(value)) : null;
    }

    @Override
    public int size() {
        long items = 0;
        if (low == null && high == null) {
            items = tree.size();
        } else {
            for (Iterator<?> all = items().iterator(); all.hasNext(); all.next()) {
                items++;
            }
        }
        return (int) Math.min(items, Integer.MAX_VALUE);
    }

    @Override
    public boolean isEmpty() {
        return !items().limit(1).iterator().hasNext();
    }

    @Override
    public void clear() {
        items().remove();
    }

    @Override
    public Comparator<? super K> comparator() {
        return isDescending ? ascending().reversed() : ascending();
    }

    private static <K, V> Map.Entry<K, V> first(Scan<K, V> items) {
        Iterator<Map.Entry<K, V>> all = items.limit(1).iterator();
        return all.hasNext() ? all.next() : null;
    }

    private static <K> K keyOf(Map.Entry<K, ?> entry) {
        return entry == null ? null : entry.getKey();
    }

    private static <K> K keyOrThrow(Map.Entry<K, ?> entry) {
        if (entry == null) {
            throw new NoSuchElementException();
        }
        return entry.getKey();
    }

    /** Returns the nearest item above a key, in the order of the tree. */
    private Map.Entry<K, V> above(K key, boolean isIncluded) {
        if (isTooHigh(key(key))) {
            return null;
        }
        return isTooLow(key) ? first(items()) : first(isIncluded ? items().from(key) : items().after(key));
    }

    /** Returns the nearest item below a key, in the order of the tree. */
    private Map.Entry<K, V> below(K key, boolean isIncluded) {
        if (isTooLow(key(key))) {
            return null;
        }
        Scan<K, V> last = isTooHigh(key) ? items() : isIncluded ? items().through(key) : items().before(key);
        return first(last.reverse());
    }

    @Override
    public Map.Entry<K, V> firstEntry() {
        return first(inOrder());
    }

    @Override
    public Map.Entry<K, V> lastEntry() {
        return first(inOrder().reverse());
    }

    @Override
    public K firstKey() {
        return keyOrThrow(firstEntry());
    }

    @Override
    public K lastKey() {
        return keyOrThrow(lastEntry());
    }

    @Override
    public Map.Entry<K, V> lowerEntry(K key) {
        return isDescending ? above(key, false) : below(key, false);
    }

    @Override
    public Map.Entry<K, V> floorEntry(K key) {
        return isDescending ? above(key, true) : below(key, true);
    }

    @Override
    public Map.Entry<K, V> ceilingEntry(K key) {
        return isDescending ? below(key, true) : above(key, true);
    }

    @Override
    public Map.Entry<K, V> higherEntry(K key) {
        return isDescending ? below(key, false) : above(key, false);
    }

    @Override
    public K lowerKey(K key) {
        return keyOf(lowerEntry(key));
    }

    @Override
    public K floorKey(K key) {
        return keyOf(floorEntry(key));
    }

    @Override
    public K ceilingKey(K key) {
        return keyOf(ceilingEntry(key));
    }

    @Override
    public K higherKey(K key) {
        return keyOf(higherEntry(key));
    }

    /** Removes the first item. If another thread changes it meanwhile, it tries again. */
    private static <K, V> Map.Entry<K, V> poll(Tree<K, V> tree, Scan<K, V> items) {
        while (true) {
            Map.Entry<K, V> entry = first(items);
            if (entry == null || tree.compareAndSwap(entry.getKey(), entry.getValue(), null).swapped()) {
                return entry;
            }
        }
    }

    @Override
    public Map.Entry<K, V> pollFirstEntry() {
        return poll(tree, inOrder());
    }

    @Override
    public Map.Entry<K, V> pollLastEntry() {
        return poll(tree, inOrder().reverse());
    }

    /** Returns a narrower map. The bounds, of which null is none, are in the order of this map. */
    private TreeView<K, V> within(Bound<K> from, Bound<K> to) {
        if (from != null && to != null && comparator().compare(from.key, to.key) > 0) {
            throw new IllegalArgumentException("the first bound is greater than the last one");
        }
        Bound<K> lowest = isDescending ? to : from;
        Bound<K> highest = isDescending ? from : to;
        return new TreeView<>(tree, narrower(lowest, low), narrower(highest, high), isDescending);
    }

    /** Returns the bound, which must be inside of this map, or else that of this map. */
    private Bound<K> narrower(Bound<K> asked, Bound<K> own) {
        if (asked == null) {
            return own;
        }
        boolean isOwn = own != null && ascending().compare(key(asked.key), own.key) == 0 && (own.isIncluded || !asked.isIncluded);
        if (!isOwn && !isInside(key(asked.key))) {
            throw new IllegalArgumentException("a bound is outside of the range of this map");
        }
        return asked;
    }

    @Override
    public TreeView<K, V> subMap(K from, boolean isFromIncluded, K to, boolean isToIncluded) {
        return within(new Bound<>(key(from), isFromIncluded), new Bound<>(key(to), isToIncluded));
    }

    @Override
    public TreeView<K, V> headMap(K to, boolean isIncluded) {
        return within(null, new Bound<>(key(to), isIncluded));
    }

    @Override
    public TreeView<K, V> tailMap(K from, boolean isIncluded) {
        return within(new Bound<>(key(from), isIncluded), null);
    }

    @Override
    public TreeView<K, V> subMap(K from, K to) {
        return subMap(from, true, to, false);
    }

    @Override
    public TreeView<K, V> headMap(K to) {
        return headMap(to, false);
    }

    @Override
    public TreeView<K, V> tailMap(K from) {
        return tailMap(from, true);
    }

    @Override
    public TreeView<K, V> descendingMap() {
        return new TreeView<>(tree, low, high, !isDescending);
    }

    @Override
    public NavigableSet<K> navigableKeySet() {
        return new Keys<>(this);
    }

    @Override
    public NavigableSet<K> keySet() {
        return navigableKeySet();
    }

    @Override
    public NavigableSet<K> descendingKeySet() {
        return descendingMap().navigableKeySet();
    }

    /** An iterator that applies a function to each item. */
    private record Mapped<A, B>(Iterator<A> all, java.util.function.Function<A, B> of) implements Iterator<B> {
        @Override
        public boolean hasNext() {
            return all.hasNext();
        }

        @Override
        public B next() {
            return of.apply(all.next());
        }

        @Override
        public void remove() {
            all.remove();
        }
    }

    /** An entry that writes to the tree. */
    private final class Entry extends SimpleEntry<K, V> {
        private static final long serialVersionUID = 1;

        Entry(Map.Entry<K, V> item) {
            super(item);
        }

        @Override
        public V setValue(V value) {
            put(getKey(), value);
            return super.setValue(value);
        }
    }

    @Override
    public Set<Map.Entry<K, V>> entrySet() {
        return new AbstractSet<>() {
            @Override
            public Iterator<Map.Entry<K, V>> iterator() {
                return new Mapped<>(inOrder().iterator(), Entry::new);
            }

            @Override
            public int size() {
                return TreeView.this.size();
            }

            @Override
            public boolean contains(Object it) {
                return it instanceof Map.Entry<?, ?> entry && Objects.deepEquals(get(entry.getKey()), entry.getValue());
            }

            @Override
            public boolean remove(Object it) {
                return it instanceof Map.Entry<?, ?> entry && TreeView.this.remove(entry.getKey(), entry.getValue());
            }

            @Override
            public void clear() {
                TreeView.this.clear();
            }
        };
    }

    /** The keys of a map. */
    private static final class Keys<K, V> extends AbstractSet<K> implements NavigableSet<K> {
        private final TreeView<K, V> map;

        Keys(TreeView<K, V> map) {
            this.map = map;
        }

        @Override
        public Iterator<K> iterator() {
            return new Mapped<>(map.inOrder().iterator(), Map.Entry::getKey);
        }

        @Override
        public int size() {
            return map.size();
        }

        @Override
        public boolean isEmpty() {
            return map.isEmpty();
        }

        @Override
        public boolean contains(Object key) {
            return map.containsKey(key);
        }

        @Override
        public boolean remove(Object key) {
            return map.remove(key) != null;
        }

        @Override
        public void clear() {
            map.clear();
        }

        @Override
        public Comparator<? super K> comparator() {
            return map.comparator();
        }

        @Override
        public K first() {
            return map.firstKey();
        }

        @Override
        public K last() {
            return map.lastKey();
        }

        @Override
        public K lower(K key) {
            return map.lowerKey(key);
        }

        @Override
        public K floor(K key) {
            return map.floorKey(key);
        }

        @Override
        public K ceiling(K key) {
            return map.ceilingKey(key);
        }

        @Override
        public K higher(K key) {
            return map.higherKey(key);
        }

        @Override
        public K pollFirst() {
            return keyOf(map.pollFirstEntry());
        }

        @Override
        public K pollLast() {
            return keyOf(map.pollLastEntry());
        }

        @Override
        public NavigableSet<K> descendingSet() {
            return map.descendingKeySet();
        }

        @Override
        public Iterator<K> descendingIterator() {
            return descendingSet().iterator();
        }

        @Override
        public NavigableSet<K> subSet(K from, boolean isFromIncluded, K to, boolean isToIncluded) {
            return map.subMap(from, isFromIncluded, to, isToIncluded).navigableKeySet();
        }

        @Override
        public NavigableSet<K> headSet(K to, boolean isIncluded) {
            return map.headMap(to, isIncluded).navigableKeySet();
        }

        @Override
        public NavigableSet<K> tailSet(K from, boolean isIncluded) {
            return map.tailMap(from, isIncluded).navigableKeySet();
        }

        @Override
        public NavigableSet<K> subSet(K from, K to) {
            return subSet(from, true, to, false);
        }

        @Override
        public NavigableSet<K> headSet(K to) {
            return headSet(to, false);
        }

        @Override
        public NavigableSet<K> tailSet(K from) {
            return tailSet(from, true);
        }
    }
}
