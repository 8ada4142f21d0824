/**
 * Ordered maps that survive crashes: concurrent B+-trees in shared memory, in persistent memory, or in an ordinary file.
 *
 * <p>Begin with {@link bristlecone.Pool}. The package calls the C library of the project, {@code libbristlecone.so.1}, which
 * must be found by the loader, or be named by the property {@code bristlecone.library}.
 */
package bristlecone;
