// Trees whose values expire. Part of bristlecone.hpp.
#ifndef BRISTLECONE_EXPIRING_HPP
#define BRISTLECONE_EXPIRING_HPP

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "codec.hpp"
#include "range.hpp"
#include "tree.hpp"

namespace bristlecone {

/// When a value expires: at a time in milliseconds, never, or as its tree says, which is the default of writes.
class expiry {
public:
    using clock = std::chrono::system_clock;

    /// The expiry of the tree: see bristlecone_tree_options.
    constexpr expiry() = default;
    /// At a time, rounded up to a millisecond. A time before 1970 has passed already.
    expiry(clock::time_point time) : ms_(rounded(time)) {}

    static constexpr expiry never() { return from_millis(BRISTLECONE_NEVER_EXPIRES); }
    /// After a duration from now on.
    static expiry after(clock::duration duration) { return expiry(clock::now() + duration); }
    /// At a number of milliseconds since 1970: 0 is never, and BRISTLECONE_DEFAULT_EXPIRY the tree's.
    static constexpr expiry from_millis(std::uint64_t ms) {
        expiry at;
        at.ms_ = ms;
        return at;
    }

    constexpr std::uint64_t millis() const { return ms_; }
    /// The time; none if the value does not expire, or later than the clock can represent.
    std::optional<clock::time_point> time() const {
        using std::chrono::duration_cast;
        const auto latest = duration_cast<std::chrono::milliseconds>(clock::time_point::max().time_since_epoch());
        if (ms_ == BRISTLECONE_NEVER_EXPIRES || ms_ > static_cast<std::uint64_t>(latest.count())) return std::nullopt;
        return clock::time_point(duration_cast<clock::duration>(std::chrono::milliseconds(ms_)));
    }
    friend constexpr bool operator==(expiry a, expiry b) { return a.ms_ == b.ms_; }
    friend constexpr bool operator!=(expiry a, expiry b) { return a.ms_ != b.ms_; }

private:
    static std::uint64_t rounded(clock::time_point time) {
        const auto since = time.time_since_epoch();
        if (since.count() <= 0) return 1;
        const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(since);
        return static_cast<std::uint64_t>(whole.count()) + (whole < since ? 1 : 0);
    }

    std::uint64_t ms_ = BRISTLECONE_DEFAULT_EXPIRY;
};

/// A value with the time at which it expires. As a type of values, `expiring<V>` makes a tree whose entries expire.
template <class V>
struct expiring {
    /// The value.
    typename codec<V>::owned value{};
    /// When it expires: milliseconds since 1970, or BRISTLECONE_NEVER_EXPIRES.
    std::uint64_t expires_ms = BRISTLECONE_NEVER_EXPIRES;
};

template <class V>
struct codec<expiring<V>> : detail::packed<expiring<V>, codec<expiring<V>>> {
    static std::string kind() { return "Expiring<" + codec<V>::kind() + ">"; }
    static void pack(std::string& to, const expiring<V>& entry) {
        codec<std::uint64_t>::pack(to, entry.expires_ms);
        codec<V>::pack(to, entry.value);
    }
    static expiring<V> unpack(const char*& from, const char* end) {
        const std::uint64_t expires_ms = codec<std::uint64_t>::unpack(from, end);
        return {codec<V>::unpack(from, end), expires_ms};
    }
};

/// What a pass of expiring_tree::remove_expired did.
struct expired_removal {
    /// Entries that it read.
    std::uint64_t examined = 0;
    /// Expired entries that it removed.
    std::uint64_t removed = 0;
    /// Whether it reached the end of the tree, so that the next pass begins at the smallest key.
    bool is_complete = false;
};

/// A tree whose entries expire: for its operations, an entry whose time has come is absent. Copies are handles to the
/// same tree. Batches, transactions, snapshots and removals of ranges use the tree of entries, whose values have their
/// times.
///
///     bristlecone::expiring_tree sessions(pool.tree<std::string, bristlecone::expiring<std::uint64_t>>("sessions"));
///     sessions.put("ada", 7, bristlecone::expiry::after(std::chrono::hours(1)));
template <class K, class V>
class expiring_tree : private tree<K, V> {
    using base = bristlecone::tree<K, V>;

public:
    using typename base::key_type;
    using typename base::key_view;
    using typename base::mapped_type;
    using typename base::value_type;
    using typename base::value_view;

    /// The tree of all entries, expired or not.
    using entries_type = bristlecone::tree<K, expiring<V>>;

    explicit expiring_tree(entries_type entries) : base(entries.handle_, opened(entries)), entries_(std::move(entries)) {}

    /// The tree of all entries, expired or not, with their times.
    const entries_type& entries() const noexcept { return entries_; }

    using base::below;
    using base::c_handle;
    using base::contains;
    using base::first;
    using base::from;
    using base::get_with;
    using base::last;
    using base::prefix;
    using base::range;

    /// The value of a key.
    std::optional<mapped_type> get(key_view key) const {
        return base::old([&](bristlecone_show to, void* context) {
            return base::with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_get_with(c_handle(), k, ks, to, context);
            });
        });
    }

    /// Writes a key's value and its expiry, whether or not the key exists.
    void put(key_view key, value_view value, expiry at = {}) {
        detail::check(base::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
            return bristlecone_expiring_put(c_handle(), k, ks, v, vs, at.millis());
        }));
    }

    /// Writes a key's value and its expiry; returns the previous value.
    std::optional<mapped_type> exchange(key_view key, value_view value, expiry at = {}) {
        return base::old([&](bristlecone_show to, void* context) {
            return base::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_expiring_exchange(c_handle(), k, ks, v, vs, at.millis(), to, context);
            });
        });
    }

    /// Inserts an absent key; false if it exists.
    bool insert(key_view key, value_view value, expiry at = {}) {
        const int status = base::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
            return bristlecone_expiring_insert(c_handle(), k, ks, v, vs, at.millis(), nullptr, nullptr);
        });
        return detail::unless(status, BRISTLECONE_PRESENT);
    }

    /// Replaces the value of an existing key and its expiry; returns the previous value. None: the key is absent.
    std::optional<mapped_type> update(key_view key, value_view value, expiry at = {}) {
        return base::old([&](bristlecone_show to, void* context) {
            return base::with_item(key, value, [&](const void* k, std::size_t ks, const void* v, std::size_t vs) {
                return bristlecone_expiring_update(c_handle(), k, ks, v, vs, at.millis(), to, context);
            });
        });
    }

    /// Removes a key; returns its value. None: it was absent.
    std::optional<mapped_type> remove(key_view key) {
        return base::old([&](bristlecone_show to, void* context) {
            return base::with_key(key, [&](const void* k, std::size_t ks) {
                return bristlecone_remove(c_handle(), k, ks, to, context);
            });
        });
    }

    /// Changes a key from `expected` to `wanted` with its expiry atomically; std::nullopt means an absent key. False if the
    /// key is not as expected: nothing has changed, and `found`, unless it is null, is the present value.
    bool compare_and_swap(key_view key, const std::optional<mapped_type>& expected,
                          const std::optional<mapped_type>& wanted, expiry at = {},
                          std::optional<mapped_type>* found = nullptr) {
        return base::swap(key, expected, wanted, found,
                          [&](const void* k, std::size_t ks, const void* e, std::size_t es, const void* w, std::size_t ws,
                              bristlecone_show to, void* context) {
                              return bristlecone_expiring_compare_and_swap(c_handle(), k, ks, e, es, w, ws, at.millis(), to,
                                                                           context);
                          });
    }

    /// When a key expires; none if it is absent.
    std::optional<bristlecone::expiry> expires(key_view key) const {
        return timed(key, [&](const void* k, std::size_t ks, std::uint64_t* ms) {
            return bristlecone_expiry(c_handle(), k, ks, ms);
        });
    }

    /// Sets when a key expires, and keeps its value; the default renews it. Returns the previous expiry; none if the key
    /// is absent.
    std::optional<bristlecone::expiry> set_expiry(key_view key, expiry at = {}) {
        return timed(key, [&](const void* k, std::size_t ks, std::uint64_t* ms) {
            return bristlecone_set_expiry(c_handle(), k, ks, at.millis(), ms);
        });
    }

    /// How long a value lives if its write names no expiry; none: it does not expire.
    std::optional<std::chrono::milliseconds> expire_after() const {
        const std::uint64_t ms = base::info().expire_after_ms;
        if (ms == 0) return std::nullopt;
        const auto most = static_cast<std::uint64_t>(std::numeric_limits<std::chrono::milliseconds::rep>::max());
        return std::chrono::milliseconds(ms < most ? ms : most);
    }

    /// Reads up to `budget` entries and removes the expired ones among them; the next call of this handle, or of a copy,
    /// continues behind them.
    expired_removal remove_expired(std::uint64_t budget) {
        expired_removal pass;
        int complete = 0;
        detail::check(bristlecone_remove_expired(c_handle(), budget, &pass.examined, &pass.removed, &complete));
        pass.is_complete = complete != 0;
        return pass;
    }

private:
    static bristlecone_tree* opened(const entries_type& entries) {
        bristlecone_tree* live = nullptr;
        detail::check(bristlecone_tree_expiring(entries.c_handle(), &live));
        return live;
    }

    template <class Call>
    static std::optional<bristlecone::expiry> timed(key_view key, Call&& call) {
        std::uint64_t ms = 0;
        const int status = base::with_key(key, [&](const void* k, std::size_t ks) { return call(k, ks, &ms); });
        if (!detail::unless(status, BRISTLECONE_ABSENT)) return std::nullopt;
        return bristlecone::expiry::from_millis(ms);
    }

    entries_type entries_;
};

template <class K, class V>
expiring_tree(tree<K, expiring<V>>) -> expiring_tree<K, V>;

}  // namespace bristlecone

#endif
