package bristlecone;

import com.google.gson.JsonArray;
import com.google.gson.JsonPrimitive;
import java.util.List;
import java.util.Optional;

/** Steps of the table on trees whose values expire. */
final class ExpiringSteps {
    private ExpiringSteps() {
    }

    static ConformanceTest.Outcome run(ConformanceTest.Step step, ExpiringTree<Object, Object> tree) {
        Object key = step.datum("key", tree.keyKind());
        Object value = step.datum("value", tree.valueKind());
        Expiry at = step.of().has("expires") ? new Expiry(step.of().get("expires").getAsLong()) : Expiry.DEFAULT;
        return switch (step.name("do")) {
            case "get" -> ConformanceTest.Outcome.ofFound(tree.get(key));
            case "contains" -> new ConformanceTest.Outcome("ok", tree.contains(key));
            case "put" -> {
                if (at == Expiry.DEFAULT) {
                    tree.put(key, value);
                } else {
                    tree.put(key, value, at);
                }
                yield ConformanceTest.Outcome.DONE;
            }
            case "exchange" -> new ConformanceTest.Outcome("ok", ConformanceTest.Outcome.held(tree.exchange(key, value, at)));
            case "update" -> ConformanceTest.Outcome.ofFound(tree.update(key, value, at));
            case "remove" -> ConformanceTest.Outcome.ofFound(tree.remove(key));
            case "insert" -> {
                Object present = tree.insert(key, value, at);
                yield new ConformanceTest.Outcome(present == null ? "ok" : "present", ConformanceTest.Outcome.held(present));
            }
            case "compare_and_swap" -> {
                Tree.Swap<Object> swap =
                    tree.compareAndSwap(key, step.datum("expected", tree.valueKind()), step.datum("wanted", tree.valueKind()), at);
                yield new ConformanceTest.Outcome(swap.swapped() ? "ok" : "differs", ConformanceTest.Outcome.held(swap.found().orElse(null)));
            }
            case "scan" -> ConformanceTest.Runner.scan(step, tree.live(), tree.scan());
            case "prefix" -> ConformanceTest.Runner.scan(step, tree.live(), tree.prefix(step.datum("prefix", tree.keyKind())));
            default -> onTimes(step, tree, key, at);
        };
    }

    private static ConformanceTest.Outcome onTimes(ConformanceTest.Step step, ExpiringTree<Object, Object> tree, Object key, Expiry at) {
        return switch (step.name("do")) {
            case "expiry" -> time(tree.expiry(key));
            case "set_expiry" -> time(tree.setExpiry(key, at));
            case "expires_later" -> {
                long than = step.of().get("than").getAsLong();
                yield new ConformanceTest.Outcome("ok", tree.expiry(key).orElseThrow().millis() > than);
            }
            case "expire_after" -> new ConformanceTest.Outcome("ok", tree.expireAfter().map(it -> it.toMillis()).orElse(null));
            case "remove_expired" -> new ConformanceTest.Outcome("ok", removal(tree.removeExpired(step.of().get("budget").getAsLong())));
            default -> throw new AssertionError("an unknown operation: " + step);
        };
    }

    private static ConformanceTest.Outcome time(Optional<Expiry> at) {
        return at.map(it -> new ConformanceTest.Outcome("ok", it.millis())).orElse(new ConformanceTest.Outcome("absent", null));
    }

    /** Returns a result in the form of the table. */
    private static JsonArray removal(ExpiringTree.Removal pass) {
        JsonArray form = new JsonArray();
        List.of(pass.examined(), pass.removed()).forEach(number -> form.add(new JsonPrimitive(number)));
        form.add(pass.complete());
        return form;
    }
}
