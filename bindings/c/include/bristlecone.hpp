// Bristlecone for C++17: one header over bristlecone.h, nothing to link besides.
//
//     bristlecone::pool pool("/dev/shm/trees.pool", {.create = true});   // designated initializers: C++20
//     auto ages = pool.tree<std::string, std::uint64_t>("ages");
//     ages.put("Methuselah", 4857);                                       // durable when it returns
//     for (const auto& [name, age] : ages.range("M", "N")) std::cout << name << ": " << age << '\n';
//
// Errors are exceptions: bristlecone::error has the status of bristlecone.h and its message. What is no error is no
// exception: an absent key is an empty std::optional or false, a key that is there already is false. After an exception
// holds what bristlecone.h says of the call of the same name: nothing has changed, but for BRISTLECONE_DURABILITY_LOST.
//
// Handles close themselves, whatever the order in which they go: a tree keeps its pool open, a range keeps both. A
// pool that must be closed for certain is closed by pool::close, which says why it cannot. Pools and trees may be used
// by any number of threads at the same time, a range by one.
//
// Licence: MIT or Apache-2.0.
#ifndef BRISTLECONE_HPP
#define BRISTLECONE_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "bristlecone.h"

namespace bristlecone {

/// Why a call did not do what it was asked.
class error : public std::runtime_error {
public:
    /// Takes the message of the thread's last error.
    explicit error(int status) : std::runtime_error(bristlecone_errmsg()), status_(status) {}
    error(int status, const std::string& what) : std::runtime_error(what), status_(status) {}

    /// The status of bristlecone.h.
    int status() const noexcept { return status_; }

private:
    int status_;
};

/// Byte strings, as a type of keys or values: std::string holds them, std::string_view shows them.
struct bytes {};

/// JSON, as a type of values: verified when it is written.
struct json {};

/// Where a check found something, and what.
struct finding {
    std::string location;
    std::string what;
};

/// How a type is a key or a value: its kind, the type that operations take (`view`), the type that they give (`owned`),
/// and its bytes. Specialize it for types of your own over one of these.
template <class T, class = void>
struct codec;

namespace detail {

inline void check(int status) {
    if (status != BRISTLECONE_OK) throw error(status);
}

/// True, or false for one status that is no error.
inline bool unless(int status, int other) {
    if (status == other) return false;
    check(status);
    return true;
}

[[noreturn]] inline void unfit(const char* what) {
    throw error(BRISTLECONE_CORRUPTED, std::string("the library gave bytes that are no ") + what);
}

inline void take(const char*& from, const char* end, void* to, std::size_t bytes) {
    if (static_cast<std::size_t>(end - from) < bytes) unfit("such key or value");
    if (bytes != 0) std::memcpy(to, from, bytes);
    from += bytes;
}

/// A type whose bytes are those of the object.
template <class T>
struct plain {
    using view = T;
    using owned = T;

    template <class F>
    static void with(const T& value, F&& use) {
        use(static_cast<const void*>(&value), sizeof(T));
    }
    static T read(const void* data, std::size_t size) {
        T value;
        if (size != sizeof(T)) unfit("number");
        std::memcpy(&value, data, sizeof(T));
        return value;
    }
    static T show(const void* data, std::size_t size) { return read(data, size); }
    static void pack(std::string& to, const T& value) {
        to.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    static T unpack(const char*& from, const char* end) {
        T value;
        take(from, end, &value, sizeof(T));
        return value;
    }
};

/// A type that is held by std::string.
struct text {
    using view = std::string_view;
    using owned = std::string;

    template <class F>
    static void with(std::string_view value, F&& use) {
        // An empty value is not a null pointer, which stands for none.
        use(static_cast<const void*>(value.empty() ? "" : value.data()), value.size());
    }
    static std::string read(const void* data, std::size_t size) { return std::string(show(data, size)); }
    static std::string_view show(const void* data, std::size_t size) {
        return {static_cast<const char*>(data), size};
    }
    static void pack(std::string& to, std::string_view value) {
        const std::uint64_t size = value.size();
        to.append(reinterpret_cast<const char*>(&size), sizeof(size));
        to.append(value);
    }
    static std::string unpack(const char*& from, const char* end) {
        std::uint64_t size = 0;
        take(from, end, &size, sizeof(size));
        if (static_cast<std::uint64_t>(end - from) < size) unfit("string");
        std::string value(from, static_cast<std::size_t>(size));
        from += size;
        return value;
    }
};

/// A type that is packed: one element after the other.
template <class T, class Codec>
struct packed {
    using view = const T&;
    using owned = T;

    template <class F>
    static void with(const T& value, F&& use) {
        std::string bytes;
        Codec::pack(bytes, value);
        use(static_cast<const void*>(bytes.empty() ? "" : bytes.data()), bytes.size());
    }
    static T read(const void* data, std::size_t size) {
        const char* from = static_cast<const char*>(data);
        const char* end = from + size;
        T value = Codec::unpack(from, end);
        if (from != end) unfit("such key or value");
        return value;
    }
    static T show(const void* data, std::size_t size) { return read(data, size); }
};

/// Elements of a tuple or a pair.
template <class T, class... Elements>
struct elements : packed<T, elements<T, Elements...>> {
    static std::string kind() {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + codec<Elements>::kind()), ...);
        return "(" + names + (sizeof...(Elements) == 1 ? ",)" : ")");
    }
    static void pack(std::string& to, const T& value) {
        std::apply([&](const auto&... element) { (codec<Elements>::pack(to, element), ...); }, value);
    }
    static T unpack(const char*& from, const char* end) {
        // In braces they are taken in order.
        return T{codec<Elements>::unpack(from, end)...};
    }
};

template <class T>
constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                           !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

/// Keys or values that the calls ending in `_u64` take.
template <class T>
constexpr bool is_word = is_number<T> && std::is_unsigned_v<T> && sizeof(T) == 8;

/// Shows bytes of the library to a function, whose exceptions must not pass through the library.
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

template <class T>
struct codec<T, std::enable_if_t<detail::is_number<T>>> : detail::plain<T> {
    static std::string kind() { return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)); }
};

template <>
struct codec<float> : detail::plain<float> {
    static std::string kind() { return "f32"; }
};

template <>
struct codec<double> : detail::plain<double> {
    static std::string kind() { return "f64"; }
};

template <>
struct codec<char32_t> : detail::plain<char32_t> {
    static std::string kind() { return "char"; }
};

template <>
struct codec<bool> : detail::plain<bool> {
    static std::string kind() { return "bool"; }
};

template <>
struct codec<std::string> : detail::text {
    static std::string kind() { return "str"; }
};

template <>
struct codec<std::string_view> : codec<std::string> {};

template <>
struct codec<bytes> : detail::text {
    static std::string kind() { return "bytes"; }
};

template <>
struct codec<json> : detail::text {
    static std::string kind() { return "json"; }
};

template <std::size_t N>
struct codec<std::array<std::uint8_t, N>> : detail::plain<std::array<std::uint8_t, N>> {
    static std::string kind() { return "[u8; " + std::to_string(N) + "]"; }
};

template <std::size_t N>
struct codec<std::array<std::byte, N>> : detail::plain<std::array<std::byte, N>> {
    static std::string kind() { return "[u8; " + std::to_string(N) + "]"; }
};

template <>
struct codec<std::monostate> : detail::packed<std::monostate, codec<std::monostate>> {
    static std::string kind() { return "()"; }
    static void pack(std::string&, const std::monostate&) {}
    static std::monostate unpack(const char*&, const char*) { return {}; }
};

template <class T>
struct codec<std::optional<T>> : detail::packed<std::optional<T>, codec<std::optional<T>>> {
    static std::string kind() { return "Option<" + codec<T>::kind() + ">"; }
    static void pack(std::string& to, const std::optional<T>& value) {
        to.push_back(value ? '\1' : '\0');
        if (value) codec<T>::pack(to, *value);
    }
    static std::optional<T> unpack(const char*& from, const char* end) {
        char is_there = 0;
        detail::take(from, end, &is_there, 1);
        if (is_there == 0) return std::nullopt;
        return codec<T>::unpack(from, end);
    }
};

template <class... Elements>
struct codec<std::tuple<Elements...>> : detail::elements<std::tuple<Elements...>, Elements...> {};

template <class First, class Second>
struct codec<std::pair<First, Second>> : detail::elements<std::pair<First, Second>, First, Second> {};

/// Items of a tree within bounds, in order, from both ends. Goes through once: for a second time, ask the tree again.
/// `K` and `V` are what the tree's type says.
template <class K, class V>
class range {
public:
    using value_type = std::pair<typename codec<K>::owned, typename codec<V>::owned>;

    /// Goes forward, or backward.
    template <bool Forward>
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = range::value_type;
        using difference_type = std::ptrdiff_t;
        using pointer = const value_type*;
        using reference = const value_type&;

        iterator() = default;
        explicit iterator(range* items) : items_(items) { ++*this; }

        reference operator*() const { return *item_; }
        pointer operator->() const { return &*item_; }
        iterator& operator++() {
            item_ = Forward ? items_->next() : items_->next_back();
            return *this;
        }
        void operator++(int) { ++*this; }
        /// Only ends are equal.
        friend bool operator==(const iterator& a, const iterator& b) { return !a.item_ && !b.item_; }
        friend bool operator!=(const iterator& a, const iterator& b) { return !(a == b); }

    private:
        range* items_ = nullptr;
        std::optional<value_type> item_;
    };

    /// The same items, from the last one down.
    class backward {
    public:
        explicit backward(range&& items) : items_(std::move(items)) {}
        iterator<false> begin() { return iterator<false>(&items_); }
        iterator<false> end() { return {}; }

    private:
        range items_;
    };

    range(std::shared_ptr<bristlecone_tree> tree, const bristlecone_range& bounds) : tree_(std::move(tree)) {
        bristlecone_iter* opened = nullptr;
        detail::check(bristlecone_iter_open(tree_.get(), &bounds, &opened));
        iter_.reset(opened);
    }

    iterator<true> begin() { return iterator<true>(this); }
    iterator<true> end() { return {}; }

    /// The same items, from the last one down: `for (const auto& [key, value] : tree.range().reversed())`.
    backward reversed() && { return backward(std::move(*this)); }

    /// The next item from the front; none at the end.
    std::optional<value_type> next() { return step(bristlecone_iter_next, bristlecone_iter_next_u64); }

    /// The next item from the back; none when the front has shown the others.
    std::optional<value_type> next_back() { return step(bristlecone_iter_next_back, bristlecone_iter_next_back_u64); }

private:
    struct close {
        void operator()(bristlecone_iter* iter) const { bristlecone_iter_close(iter); }
    };

    template <class Step, class StepWords>
    std::optional<value_type> step(Step any, StepWords words) {
        if constexpr (detail::is_word<K> && detail::is_word<V>) {
            static_cast<void>(any);
            std::uint64_t key = 0;
            std::uint64_t value = 0;
            if (!detail::unless(words(iter_.get(), &key, &value, 1, nullptr), BRISTLECONE_ABSENT)) return std::nullopt;
            return value_type(key, value);
        } else {
            static_cast<void>(words);
            const void* key = nullptr;
            const void* value = nullptr;
            std::size_t key_bytes = 0;
            std::size_t value_bytes = 0;
            const int status = any(iter_.get(), &key, &key_bytes, &value, &value_bytes);
            if (!detail::unless(status, BRISTLECONE_ABSENT)) return std::nullopt;
            return value_type(codec<K>::read(key, key_bytes), codec<V>::read(value, value_bytes));
        }
    }

    std::shared_ptr<bristlecone_tree> tree_;
    std::unique_ptr<bristlecone_iter, close> iter_;
};

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

    /// A handle of the C library, for calls that are not here.
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

    /// Shows the value of a key without copying it; false if there is none. The view lives as long as the call.
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

    /// Whether a key is there.
    bool contains(key_view key) const {
        const int status = with_key(
            key, [&](const void* k, std::size_t ks) { return bristlecone_contains(c_handle(), k, ks); });
        return detail::unless(status, BRISTLECONE_ABSENT);
    }

    /// Writes a key's value, whether the key is there or not.
    void put(key_view key, value_view value) {
        if constexpr (words) {
            detail::check(bristlecone_put_u64(c_handle(), key, value));
        } else {
            detail::check(with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_put(c_handle(), k, ks, v, vs);
            }));
        }
    }

    /// Writes a key's value; returns the one that it had.
    std::optional<mapped_type> exchange(key_view key, value_view value) {
        return old([&](bristlecone_show to, void* context) {
            return with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_exchange(c_handle(), k, ks, v, vs, to, context);
            });
        });
    }

    /// Inserts a key that is absent; false if it is there.
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

    /// Replaces the value of a key that is there; returns the one that it had. None: the key is not there.
    std::optional<mapped_type> update(key_view key, value_view value) {
        return old([&](bristlecone_show to, void* context) {
            return with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_update(c_handle(), k, ks, v, vs, to, context);
            });
        });
    }

    /// Removes a key; returns its value. None: it was not there.
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

    /// Changes a key from what is expected to what is wanted, in one atomic step; std::nullopt stands for an absent
    /// key. False if the key is not as expected: nothing has changed, and `found`, unless it is null, is what there is.
    bool compare_and_swap(key_view key, const std::optional<mapped_type>& expected,
                          const std::optional<mapped_type>& wanted, std::optional<mapped_type>* found = nullptr) {
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
                            swapped = bristlecone_compare_and_swap(c_handle(), k, ks, e, es, w, ws, to, context);
                        });
                    });
                });
                return swapped;
            },
            BRISTLECONE_DIFFERS);
        if (status != BRISTLECONE_OK && found != nullptr) *found = std::move(held);
        return status == BRISTLECONE_OK;
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

    /// Writes many items, one after the other; they must be as many values as keys. After an exception the first
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

    /// What is known about the tree.
    bristlecone_tree_info info() const {
        bristlecone_tree_info known{};
        known.struct_bytes = sizeof(known);
        detail::check(bristlecone_tree_get_info(c_handle(), &known));
        return known;
    }

    /// What is wrong with the tree; nothing, as a rule. Exact only while no thread writes.
    std::vector<finding> check() const {
        std::vector<finding> found;
        const auto note = [](void* context, const char* location, const char* what) noexcept {
            static_cast<std::vector<finding>*>(context)->push_back({location, what});
        };
        detail::unless(bristlecone_tree_check(c_handle(), note, &found), BRISTLECONE_FAILED);
        return found;
    }

private:
    friend class pool;
    using key_pointer = std::add_pointer_t<std::remove_reference_t<key_view>>;
    static constexpr key_pointer no_key = nullptr;

    tree(std::shared_ptr<bristlecone_pool> pool, bristlecone_tree* handle)
        : handle_(handle, [pool = std::move(pool)](bristlecone_tree* open) { bristlecone_tree_close(open); }) {}

    /// Makes a call that shows a value to a function; returns its status, if that is no error. An absent key is none,
    /// and neither is one other status.
    template <class F, class Call>
    static int show(F& use, Call&& call, int other = BRISTLECONE_ABSENT) {
        detail::shown<F> seen(use);
        const int status = call(&detail::shown<F>::call, &seen);
        if (status != BRISTLECONE_OK && status != other) throw error(status);
        seen.rethrow();
        return status;
    }

    /// Makes a call that shows the value that was there; returns it.
    template <class Call>
    static std::optional<mapped_type> old(Call&& call) {
        std::optional<mapped_type> held;
        auto keep = [&](const void* data, std::size_t size) { held.emplace(values::read(data, size)); };
        show(keep, call);
        return held;
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

    bristlecone::range<K, V> bounded(key_pointer first, key_pointer behind) const {
        std::optional<bristlecone::range<K, V>> opened;
        with_bound(first, [&](const void* from, std::size_t from_bytes) {
            with_bound(behind, [&](const void* to, std::size_t to_bytes) {
                opened.emplace(handle_, bristlecone_range{sizeof(bristlecone_range), from, from_bytes, to, to_bytes, 0});
            });
        });
        return std::move(*opened);
    }

    std::shared_ptr<bristlecone_tree> handle_;
};

/// How a pool is opened.
struct options {
    /// Creates the pool if there is none.
    bool create = false;
    /// Creates the pool, and fails if there is one.
    bool create_new = false;
    /// Opens the pool for reading only.
    bool read_only = false;
    /// Leaves SIGBUS to the program.
    bool leave_sigbus = false;
    /// Bytes that the pool may grow to; 0 is the default.
    std::uint64_t max_bytes = 0;
    /// One of BRISTLECONE_DOMAIN_….
    std::uint32_t domain = BRISTLECONE_DOMAIN_DETECTED;
    /// Threads that recover a tree; 0: as many as the machine has.
    std::size_t recovery_threads = 0;
};

/// A tree in a pool's directory.
struct tree_entry {
    std::string name;
    std::string key_kind;
    std::string value_kind;
    std::string design;
};

/// A pool: a file with trees. Copies are handles to the same pool.
class pool {
public:
    /// Opens a pool.
    explicit pool(const std::string& path, const options& how = {}) {
        if (bristlecone_abi_version() != BRISTLECONE_ABI_VERSION) {
            throw error(BRISTLECONE_USAGE, "the library has another interface than the header: compile again");
        }
        const std::uint32_t flags = (how.create ? BRISTLECONE_CREATE : 0u) |
                                    (how.create_new ? BRISTLECONE_CREATE_NEW : 0u) |
                                    (how.read_only ? BRISTLECONE_READ : 0u) |
                                    (how.leave_sigbus ? BRISTLECONE_LEAVE_SIGBUS : 0u);
        const bristlecone_open_options asked{sizeof(asked), flags, how.domain, how.max_bytes, how.recovery_threads};
        bristlecone_pool* opened = nullptr;
        detail::check(bristlecone_pool_open(path.c_str(), &asked, &opened));
        handle_.reset(opened, bristlecone_pool_close);
    }

    /// A handle of the C library, for calls that are not here.
    bristlecone_pool* c_handle() const noexcept { return handle_.get(); }

    /// Opens the tree of this name, or creates it with defaults.
    template <class K, class V>
    bristlecone::tree<K, V> tree(const std::string& name) const {
        bristlecone_tree* opened = nullptr;
        const std::string keys = codec<K>::kind();
        const std::string values = codec<V>::kind();
        detail::check(bristlecone_tree_open_or_create(c_handle(), name.c_str(), keys.c_str(), values.c_str(), &opened));
        return {handle_, opened};
    }

    /// Creates a tree of a design, with options of it.
    template <class K, class V>
    bristlecone::tree<K, V> create_tree(const std::string& name, const std::string& design,
                                        std::initializer_list<bristlecone_option> given = {}) const {
        bristlecone_tree* opened = nullptr;
        const std::string keys = codec<K>::kind();
        const std::string values = codec<V>::kind();
        const bristlecone_tree_options asked{sizeof(asked), design.c_str(), given.begin(), given.size()};
        detail::check(
            bristlecone_tree_create(c_handle(), name.c_str(), keys.c_str(), values.c_str(), &asked, &opened));
        return {handle_, opened};
    }

    /// The trees, in the order of the directory.
    std::vector<tree_entry> trees() const {
        std::vector<tree_entry> entries;
        const auto note = [](void* context, const char* name, const char* keys, const char* values,
                             const char* design) noexcept {
            static_cast<std::vector<tree_entry>*>(context)->push_back({name, keys, values, design});
        };
        detail::check(bristlecone_pool_trees(c_handle(), note, &entries));
        return entries;
    }

    /// Drops a tree, which must not be open.
    void drop_tree(const std::string& name) { detail::check(bristlecone_pool_drop_tree(c_handle(), name.c_str())); }

    /// Gives a tree another name, whether it is open or not.
    void rename_tree(const std::string& from, const std::string& to) {
        detail::check(bristlecone_pool_rename_tree(c_handle(), from.c_str(), to.c_str()));
    }

    /// Removes every item of a tree, which must not be open, in one step.
    void clear_tree(const std::string& name) { detail::check(bristlecone_pool_clear_tree(c_handle(), name.c_str())); }

    /// Makes room ahead of time.
    void prefault(std::uint64_t bytes) { detail::check(bristlecone_pool_prefault(c_handle(), bytes)); }

    /// What is known about the pool.
    bristlecone_pool_info info() const {
        bristlecone_pool_info known{};
        known.struct_bytes = sizeof(known);
        detail::check(bristlecone_pool_get_info(c_handle(), &known));
        return known;
    }

    /// What is wrong with the pool's own structures; nothing, as a rule.
    std::vector<finding> check() const {
        std::vector<finding> found;
        const auto note = [](void* context, const char* location, const char* what) noexcept {
            static_cast<std::vector<finding>*>(context)->push_back({location, what});
        };
        detail::unless(bristlecone_pool_check(c_handle(), note, &found), BRISTLECONE_FAILED);
        return found;
    }

    /// Closes the pool. Throws, and leaves it open, while trees or ranges of it are open, here or in copies of the pool.
    void close() {
        detail::check(bristlecone_pool_close(c_handle()));
        handle_.reset();
    }

private:
    std::shared_ptr<bristlecone_pool> handle_;
};

}  // namespace bristlecone

#endif
