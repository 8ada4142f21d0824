// Trees, and operations on single keys and on many. Part of bristlecone.hpp.
#ifndef BRISTLECONE_TREE_HPP
#define BRISTLECONE_TREE_HPP

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "codec.hpp"
#include "range.hpp"

namespace bristlecone {

namespace detail {

/// Passes bytes of the library to a function, whose exceptions must not pass through the library.
template <class F>
class shown {
public:
    explicit shown(F& use) : use_(use) {}

    static void call(void* context, const void* data, std::size_t size) noexcept {
        auto* self = static_cast<shown*>(context);
        try {
            self->use_(data, size);
        } catch (...) {
            self->thrown_ = std::current_exception();
        }
    }
    void rethrow() const {
        if (thrown_) std::rethrow_exception(thrown_);
    }

private:
    F& use_;
    std::exception_ptr thrown_;
};

}  // namespace detail

/// A tree: an ordered map from K to V in a pool, for any number of threads. Copies are handles to the same tree.
template <class K, class V>
class tree {
    using keys = codec<K>;
    using values = codec<V>;
    static constexpr bool words = detail::is_word<K> && detail::is_word<V>;

public:
    using key_view = typename keys::view;
    using value_view = typename values::view;
    using key_type = typename keys::owned;
    using mapped_type = typename values::owned;
    using value_type = std::pair<key_type, mapped_type>;

    /// A handle of the C library, for calls without a wrapper here.
    bristlecone_tree* c_handle() const noexcept { return handle_.get(); }

    /// The value of a key.
    std::optional<mapped_type> get(key_view key) const {
        if constexpr (words) {
            std::uint64_t value = 0;
            if (!detail::unless(bristlecone_get_u64(c_handle(), key, &value), BRISTLECONE_ABSENT)) return std::nullopt;
            return value;
        } else {
            std::optional<mapped_type> found;
            auto keep = [&](const void* data, std::size_t size) { found.emplace(values::read(data, size)); };
            show(keep, [&](bristlecone_show to, void* context) {
                return with_key(key, [&](const void* k, std::size_t ks) {
                    return bristlecone_get_with(c_handle(), k, ks, to, context);
                });
            });
            return found;
        }
    }

    /// Passes the value of a key to a function without copying it; false if the key is absent. The view is valid
    /// during the call.
    template <class F>
    bool get_with(key_view key, F&& use) const {
        auto seen = [&](const void* data, std::size_t size) { use(values::show(data, size)); };
        const int status = show(seen, [&](bristlecone_show to, void* context) {
            return with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_get_with(c_handle(), k, ks, to, context);
            });
        });
        return status == BRISTLECONE_OK;
    }

    /// Whether a key exists.
    bool contains(key_view key) const {
        const int status = with_key(
            key, [&](const void* k, std::size_t ks) { return bristlecone_contains(c_handle(), k, ks); });
        return detail::unless(status, BRISTLECONE_ABSENT);
    }

    /// Writes a key's value, whether or not the key exists.
    void put(key_view key, value_view value) {
        if constexpr (words) {
            detail::check(bristlecone_put_u64(c_handle(), key, value));
        } else {
            detail::check(with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_put(c_handle(), k, ks, v, vs);
            }));
        }
    }

    /// Writes a key's value; returns the previous one.
    std::optional<mapped_type> exchange(key_view key, value_view value) {
        return old([&](bristlecone_show to, void* context) {
            return with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_exchange(c_handle(), k, ks, v, vs, to, context);
            });
        });
    }

    /// Inserts an absent key; false if it exists.
    bool insert(key_view key, value_view value) {
        int status;
        if constexpr (words) {
            status = bristlecone_insert_u64(c_handle(), key, value, nullptr);
        } else {
            status = with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_insert(c_handle(), k, ks, v, vs, nullptr, nullptr);
            });
        }
        return detail::unless(status, BRISTLECONE_PRESENT);
    }

    /// Replaces the value of an existing key; returns the previous one. None: the key is absent.
    std::optional<mapped_type> update(key_view key, value_view value) {
        return old([&](bristlecone_show to, void* context) {
            return with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_update(c_handle(), k, ks, v, vs, to, context);
            });
        });
    }

    /// Removes a key; returns its value. None: it was absent.
    std::optional<mapped_type> remove(key_view key) {
        if constexpr (words) {
            std::uint64_t value = 0;
            const int status = bristlecone_remove_u64(c_handle(), key, &value);
            if (!detail::unless(status, BRISTLECONE_ABSENT)) return std::nullopt;
            return value;
        } else {
            return old([&](bristlecone_show to, void* context) {
                return with_key(key, [&](const void* k, std::size_t ks) {
                    return bristlecone_remove(c_handle(), k, ks, to, context);
                });
            });
        }
    }

    /// Changes a key from `expected` to `wanted` atomically; std::nullopt means an absent key. False if the key is
    /// not as expected: nothing has changed, and `found`, unless it is null, is the present value.
    bool compare_and_swap(key_view key, const std::optional<mapped_type>& expected,
                          const std::optional<mapped_type>& wanted, std::optional<mapped_type>* found = nullptr) {
        return swap(key, expected, wanted, found,
                    [&](const void* k, std::size_t ks, const void* e, std::size_t es, const void* w, std::size_t ws,
                        bristlecone_show to, void* context) {
                        return bristlecone_compare_and_swap(c_handle(), k, ks, e, es, w, ws, to, context);
                    });
    }

    /// The values of many keys, for trees of `std::uint64_t`.
    std::vector<std::optional<std::uint64_t>> get_many(const std::vector<std::uint64_t>& many) const {
        static_assert(words, "get_many is for trees of std::uint64_t");
        std::vector<std::uint64_t> held(many.size());
        std::vector<std::uint8_t> found(many.size());
        detail::check(bristlecone_get_many_u64(c_handle(), many.data(), many.size(), held.data(), found.data()));
        std::vector<std::optional<std::uint64_t>> result(many.size());
        for (std::size_t i = 0; i < many.size(); ++i) {
            if (found[i] != 0) result[i] = held[i];
        }
        return result;
    }

    /// Writes many items, one after the other; keys and values must be equal in number. After an exception the first
    /// `*done` of them are written, and those behind the next one are not.
    void put_many(const std::vector<std::uint64_t>& many, const std::vector<std::uint64_t>& with,
                  std::size_t* done = nullptr) {
        static_assert(words, "put_many is for trees of std::uint64_t");
        if (many.size() != with.size()) throw error(BRISTLECONE_USAGE, "as many values as keys are needed");
        detail::check(bristlecone_put_many_u64(c_handle(), many.data(), with.data(), many.size(), done));
    }

    /// All items.
    bristlecone::range<K, V> range() const { return {handle_, BRISTLECONE_RANGE_INIT}; }

    /// The items from `first` up to, but without, `behind`.
    bristlecone::range<K, V> range(key_view first, key_view behind) const { return bounded(&first, &behind); }

    /// The items from `first` on.
    bristlecone::range<K, V> from(key_view first) const { return bounded(&first, no_key); }

    /// The items below `behind`.
    bristlecone::range<K, V> below(key_view behind) const { return bounded(no_key, &behind); }

    /// The items whose keys have a prefix, of a tree with string keys.
    bristlecone::range<K, V> prefix(std::string_view prefix) const {
        static_assert(std::is_same_v<key_view, std::string_view>, "prefixes are of strings");
        bristlecone_iter* opened = nullptr;
        detail::check(bristlecone_iter_open_prefix(c_handle(), prefix.data(), prefix.size(), &opened));
        return {handle_, opened};
    }

    /// Removes the items from `first` up to, but without, `behind`, all or, after an exception or a crash, none. Returns how
    /// many.
    std::uint64_t remove_range(key_view first, key_view behind) { return removed(&first, &behind); }

    /// Removes the items from `first` on, as `remove_range` does.
    std::uint64_t remove_from(key_view first) { return removed(&first, no_key); }

    /// Removes the items below `behind`, as `remove_range` does.
    std::uint64_t remove_below(key_view behind) { return removed(no_key, &behind); }

    /// Removes the items whose keys have a prefix, of a tree with string keys, as `remove_range` does.
    std::uint64_t remove_prefix(std::string_view prefix) {
        static_assert(std::is_same_v<key_view, std::string_view>, "prefixes are of strings");
        std::uint64_t items = 0;
        detail::check(bristlecone_remove_prefix(c_handle(), prefix.data(), prefix.size(), &items));
        return items;
    }

    /// Removes all items, as `remove_range` does.
    std::uint64_t clear() { return removed(no_key, no_key); }

    /// The item with the smallest key.
    std::optional<value_type> first() const { return range().next(); }

    /// The item with the largest key.
    std::optional<value_type> last() const { return range().next_back(); }

    /// The number of items; exact while no thread writes.
    std::uint64_t size() const {
        std::uint64_t items = 0;
        detail::check(bristlecone_tree_len(c_handle(), &items));
        return items;
    }

    bool empty() const { return size() == 0; }

    /// Information about the tree.
    bristlecone_tree_info info() const {
        bristlecone_tree_info known{};
        known.struct_bytes = sizeof(known);
        detail::check(bristlecone_tree_get_info(c_handle(), &known));
        return known;
    }

    /// Damage to the tree; normally none. Exact only while no thread writes.
    std::vector<issue> check() const {
        std::vector<issue> found;
        const auto note = [](void* context, const char* location, const char* what) noexcept {
            static_cast<std::vector<issue>*>(context)->push_back({location, what});
        };
        detail::unless(bristlecone_tree_check(c_handle(), note, &found), BRISTLECONE_FAILED);
        return found;
    }

protected:
    friend class pool;
    friend class batch;
    friend class snapshot;
    friend class transaction;
    template <class, class>
    friend class expiring_tree;
    using key_pointer = std::add_pointer_t<std::remove_reference_t<key_view>>;
    static constexpr key_pointer no_key = nullptr;

    tree(std::shared_ptr<bristlecone_pool> pool, bristlecone_tree* handle)
        : handle_(handle, [pool = std::move(pool)](bristlecone_tree* open) { bristlecone_tree_close(open); }) {}

    /// Another handle, which keeps the first one open.
    tree(std::shared_ptr<bristlecone_tree> first, bristlecone_tree* handle)
        : handle_(handle, [first = std::move(first)](bristlecone_tree* open) { bristlecone_tree_close(open); }) {}

    /// Makes a call that passes a value to a function; returns its status if it is not an error. An absent key is not
    /// an error, and neither is one other status.
    template <class F, class Call>
    static int show(F& use, Call&& call, int other = BRISTLECONE_ABSENT) {
        detail::shown<F> seen(use);
        const int status = call(&detail::shown<F>::call, &seen);
        if (status != BRISTLECONE_OK && status != other) throw error(status);
        seen.rethrow();
        return status;
    }

    /// Makes a call that passes the previous value; returns it.
    template <class Call>
    static std::optional<mapped_type> old(Call&& call) {
        std::optional<mapped_type> held;
        auto keep = [&](const void* data, std::size_t size) { held.emplace(values::read(data, size)); };
        show(keep, call);
        return held;
    }

    /// Makes a call that compares and swaps.
    template <class Call>
    static bool swap(key_view key, const std::optional<mapped_type>& expected, const std::optional<mapped_type>& wanted,
                     std::optional<mapped_type>* found, Call&& call) {
        std::optional<mapped_type> held;
        auto keep = [&](const void* data, std::size_t size) { held.emplace(values::read(data, size)); };
        const auto none_or = [](const std::optional<mapped_type>& value, auto&& use) {
            if (value) {
                values::with(*value, use);
            } else {
                use(nullptr, 0);
            }
        };
        const int status = show(
            keep,
            [&](bristlecone_show to, void* context) {
                int swapped = BRISTLECONE_BUG;
                keys::with(key, [&](const void* k, std::size_t ks) {
                    none_or(expected, [&](const void* e, std::size_t es) {
                        none_or(wanted, [&](const void* w, std::size_t ws) {
                            swapped = call(k, ks, e, es, w, ws, to, context);
                        });
                    });
                });
                return swapped;
            },
            BRISTLECONE_DIFFERS);
        if (status != BRISTLECONE_OK && found != nullptr) *found = std::move(held);
        return status == BRISTLECONE_OK;
    }

    template <class F>
    static int with_key(key_view key, F&& use) {
        int status = BRISTLECONE_BUG;
        keys::with(key, [&](const void* k, std::size_t ks) { status = use(k, ks); });
        return status;
    }

    template <class F>
    static int with_item(key_view key, value_view value, F&& use) {
        int status = BRISTLECONE_BUG;
        keys::with(key, [&](const void* k, std::size_t ks) {
            values::with(value, [&](const void* v, std::size_t vs) { status = use(k, ks, v, vs); });
        });
        return status;
    }

    template <class F>
    static void with_bound(key_pointer key, F&& use) {
        if (key == nullptr) {
            use(nullptr, 0);
        } else {
            keys::with(*key, use);
        }
    }

    std::uint64_t removed(key_pointer first, key_pointer behind) {
        std::uint64_t items = 0;
        with_bound(first, [&](const void* from, std::size_t from_bytes) {
            with_bound(behind, [&](const void* to, std::size_t to_bytes) {
                const bristlecone_range bounds{sizeof(bounds), from, from_bytes, to, to_bytes, 0};
                detail::check(bristlecone_remove_range(c_handle(), &bounds, &items));
            });
        });
        return items;
    }

    bristlecone::range<K, V> bounded(key_pointer first, key_pointer behind) const {
        std::optional<bristlecone::range<K, V>> opened;
        with_bound(first, [&](const void* from, std::size_t from_bytes) {
            with_bound(behind, [&](const void* to, std::size_t to_bytes) {
                opened.emplace(handle_, bristlecone_range{sizeof(bristlecone_range), from, from_bytes, to, to_bytes, 0});
            });
        });
        return std::move(*opened);
    }

private:
    std::shared_ptr<bristlecone_tree> handle_;
};

}  // namespace bristlecone

#endif
