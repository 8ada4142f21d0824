// Batches, snapshots and transactions. Part of bristlecone.hpp.
#ifndef BRISTLECONE_SEVERAL_HPP
#define BRISTLECONE_SEVERAL_HPP

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tree.hpp"

namespace bristlecone {

namespace detail {

/// Makes a call copy a value to a sufficiently large buffer; none if there is no value.
template <class V, class Call>
std::optional<typename codec<V>::owned> copied(Call&& call) {
    std::string buffer(64, '\0');
    std::size_t size = 0;
    int status = call(&buffer[0], buffer.size(), &size);
    while (status == BRISTLECONE_TOO_SMALL) {
        buffer.resize(size);
        status = call(&buffer[0], buffer.size(), &size);
    }
    if (!unless(status, BRISTLECONE_ABSENT)) return std::nullopt;
    return codec<V>::read(buffer.data(), size);
}

}  // namespace detail

/// Changes of any trees of one pool that are applied atomically. Until it is committed it is a list in DRAM; destroying
/// it discards it. Only one thread may use it at a time.
class batch {
public:
    /// Writes a key's value, whether or not the key exists. Of several changes of a key the last one counts.
    template <class K, class V>
    batch& put(const tree<K, V>& in, typename tree<K, V>::key_view key, typename tree<K, V>::value_view value) {
        detail::check(tree<K, V>::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
            return bristlecone_batch_put(handle_.get(), in.c_handle(), k, ks, v, vs);
        }));
        return *this;
    }

    /// Removes a key, if it exists.
    template <class K, class V>
    batch& remove(const tree<K, V>& in, typename tree<K, V>::key_view key) {
        detail::check(tree<K, V>::with_key(key, [&](const void* k, std::size_t ks) {
            return bristlecone_batch_remove(handle_.get(), in.c_handle(), k, ks);
        }));
        return *this;
    }

    /// Adds a condition: before the batch, the key has this value, or is absent.
    template <class K, class V>
    batch& expect(const tree<K, V>& in, typename tree<K, V>::key_view key,
                  const std::optional<typename tree<K, V>::mapped_type>& value) {
        int status = BRISTLECONE_BUG;
        const auto expect = [&](const void* v, std::size_t vs) {
            status = tree<K, V>::with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_batch_expect(handle_.get(), in.c_handle(), k, ks, v, vs);
            });
        };
        if (value) {
            codec<V>::with(*value, expect);
        } else {
            expect(nullptr, 0);
        }
        detail::check(status);
        return *this;
    }

    /// Applies all changes atomically; false if a condition does not hold: then nothing has changed. In both cases the
    /// batch has ended.
    bool commit() { return detail::unless(bristlecone_batch_commit(handle_.release()), BRISTLECONE_CONFLICT); }

private:
    friend class pool;
    struct discard {
        void operator()(bristlecone_batch* open) const { bristlecone_batch_discard(open); }
    };

    batch(std::shared_ptr<bristlecone_pool> pool, bristlecone_batch* handle) : pool_(std::move(pool)), handle_(handle) {}

    std::shared_ptr<bristlecone_pool> pool_;
    std::unique_ptr<bristlecone_batch, discard> handle_;
};

/// All trees of a pool as of one instant, for any number of threads. Later changes are retained in DRAM as long as a
/// snapshot needs them.
class snapshot {
public:
    /// The value of a key at that instant.
    template <class K, class V>
    std::optional<typename tree<K, V>::mapped_type> get(const tree<K, V>& in, typename tree<K, V>::key_view key) const {
        return detail::copied<V>([&](void* to, std::size_t capacity, std::size_t* size) {
            return tree<K, V>::with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_snapshot_get(handle_.get(), in.c_handle(), k, ks, to, capacity, size);
            });
        });
    }

    /// All items at that instant.
    template <class K, class V>
    bristlecone::range<K, V> range(const tree<K, V>& in) const {
        const bristlecone_range all = BRISTLECONE_RANGE_INIT;
        return opened(in, all);
    }

    /// The items from `first` up to, but without, `behind` at that instant.
    template <class K, class V>
    bristlecone::range<K, V> range(const tree<K, V>& in, typename tree<K, V>::key_view first,
                                   typename tree<K, V>::key_view behind) const {
        std::optional<bristlecone::range<K, V>> found;
        codec<K>::with(first, [&](const void* from, std::size_t from_bytes) {
            codec<K>::with(behind, [&](const void* to, std::size_t to_bytes) {
                found.emplace(opened(in, {sizeof(bristlecone_range), from, from_bytes, to, to_bytes, 0}));
            });
        });
        return std::move(*found);
    }

    /// Bytes of DRAM retained for it, approximately.
    std::size_t bytes() const {
        std::size_t kept = 0;
        detail::check(bristlecone_snapshot_bytes(handle_.get(), &kept));
        return kept;
    }

private:
    friend class pool;

    snapshot(std::shared_ptr<bristlecone_pool> pool, bristlecone_snapshot* handle)
        : handle_(handle, [pool = std::move(pool)](bristlecone_snapshot* open) { bristlecone_snapshot_close(open); }) {}

    template <class K, class V>
    bristlecone::range<K, V> opened(const tree<K, V>& in, const bristlecone_range& bounds) const {
        bristlecone_iter* iter = nullptr;
        detail::check(bristlecone_snapshot_iter_open(handle_.get(), in.c_handle(), &bounds, &iter));
        return {in.handle_, iter};
    }

    std::shared_ptr<bristlecone_snapshot> handle_;
};

/// A transaction in progress: see pool::transaction. It reads all trees as of one instant, together with its own
/// writes.
class transaction {
public:
    /// The value of a key.
    template <class K, class V>
    std::optional<typename tree<K, V>::mapped_type> get(const tree<K, V>& in, typename tree<K, V>::key_view key) {
        return detail::copied<V>([&](void* to, std::size_t capacity, std::size_t* size) {
            return tree<K, V>::with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_transaction_get(handle_.get(), in.c_handle(), k, ks, to, capacity, size);
            });
        });
    }

    /// Writes a key's value.
    template <class K, class V>
    void put(const tree<K, V>& in, typename tree<K, V>::key_view key, typename tree<K, V>::value_view value) {
        detail::check(tree<K, V>::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
            return bristlecone_transaction_put(handle_.get(), in.c_handle(), k, ks, v, vs);
        }));
    }

    /// Removes a key, if it exists.
    template <class K, class V>
    void remove(const tree<K, V>& in, typename tree<K, V>::key_view key) {
        detail::check(tree<K, V>::with_key(key, [&](const void* k, std::size_t ks) {
            return bristlecone_transaction_remove(handle_.get(), in.c_handle(), k, ks);
        }));
    }

    /// The items from `first` up to, but without, `behind`, as seen by the transaction.
    template <class K, class V>
    std::vector<typename tree<K, V>::value_type> range(const tree<K, V>& in, typename tree<K, V>::key_view first,
                                                       typename tree<K, V>::key_view behind) {
        gathered<K, V> items;
        codec<K>::with(first, [&](const void* from, std::size_t from_bytes) {
            codec<K>::with(behind, [&](const void* to, std::size_t to_bytes) {
                const bristlecone_range bounds{sizeof(bounds), from, from_bytes, to, to_bytes, 0};
                detail::check(bristlecone_transaction_scan(handle_.get(), in.c_handle(), &bounds, gathered<K, V>::add, &items));
            });
        });
        if (items.thrown) std::rethrow_exception(items.thrown);
        return std::move(items.found);
    }

private:
    friend class pool;
    struct rollback {
        void operator()(bristlecone_transaction* open) const { bristlecone_transaction_rollback(open); }
    };

    template <class K, class V>
    struct gathered {
        std::vector<typename tree<K, V>::value_type> found;
        std::exception_ptr thrown;

        static int add(void* context, const void* key, std::size_t key_bytes, const void* value,
                       std::size_t value_bytes) noexcept {
            auto* self = static_cast<gathered*>(context);
            try {
                self->found.emplace_back(codec<K>::read(key, key_bytes), codec<V>::read(value, value_bytes));
            } catch (...) {
                self->thrown = std::current_exception();
            }
            return self->thrown != nullptr;
        }
    };

    explicit transaction(bristlecone_transaction* handle) : handle_(handle) {}

    /// False if a concurrent change conflicts.
    bool commit() { return detail::unless(bristlecone_transaction_commit(handle_.release()), BRISTLECONE_CONFLICT); }

    std::unique_ptr<bristlecone_transaction, rollback> handle_;
};

}  // namespace bristlecone

#endif
