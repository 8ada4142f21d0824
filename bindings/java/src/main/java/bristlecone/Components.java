package bristlecone;

import java.lang.invoke.MethodType;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.RecordComponent;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** The components of a record, and its constructor. */
final class Components<R extends Record> {
    private final Constructor<R> constructor;
    private final List<Method> accessors;

    Components(Class<R> type, List<Class<?>> kinds) {
        RecordComponent[] components = type.getRecordComponents();
        Class<?>[] types = Arrays.stream(components).map(RecordComponent::getType).toArray(Class<?>[]::new);
        List<Class<?>> boxed = Arrays.stream(types).<Class<?>>map(it -> MethodType.methodType(it).wrap().returnType()).toList();
        if (!boxed.equals(kinds)) {
            throw BristleconeException.usage(type + " has components of " + boxed + ", where the kinds have " + kinds);
        }
        accessors = Arrays.stream(components).map(RecordComponent::getAccessor).toList();
        try {
            constructor = type.getDeclaredConstructor(types);
            constructor.setAccessible(true);
            accessors.forEach(accessor -> accessor.setAccessible(true));
        } catch (ReflectiveOperationException | RuntimeException refused) {
            throw BristleconeException.usage(type + " cannot be used: open its package to bristlecone (" + refused.getMessage() + ")");
        }
    }

    List<Object> of(R record) {
        List<Object> elements = new ArrayList<>(accessors.size());
        try {
            for (Method accessor : accessors) {
                elements.add(accessor.invoke(record));
            }
        } catch (ReflectiveOperationException refused) {
            throw BristleconeException.usage("an accessor of " + record.getClass() + " failed: " + refused.getCause());
        }
        return elements;
    }

    R construct(List<Object> elements) {
        try {
            return constructor.newInstance(elements.toArray());
        } catch (ReflectiveOperationException refused) {
            throw BristleconeException.usage(constructor + " failed: " + refused.getCause());
        }
    }
}
