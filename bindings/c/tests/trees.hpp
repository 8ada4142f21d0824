// Trees by the calls of C and of C++, with keys and values as bytes. Included by conformance.cpp.
#ifndef TREES_HPP
#define TREES_HPP

#include "table.hpp"

#include <bristlecone.hpp>

#include <memory>

namespace {

struct bounds {
    maybe from, to;
    std::uint32_t flags = 0;
    bool reverse = false;
    std::size_t limit = SIZE_MAX;

    bristlecone_range c() const {
        bristlecone_range range = BRISTLECONE_RANGE_INIT;
        if (from) range.from = from->data(), range.from_bytes = from->size();
        if (to) range.to = to->data(), range.to_bytes = to->size();
        range.flags = flags;
        return range;
    }
};

/// The outcome of a call, and what it returned.
struct result {
    int status = BRISTLECONE_OK;
    maybe value;
    std::vector<item> items;
    std::vector<maybe> many;
};

void keep(void* context, const void* value, size_t size) { *static_cast<maybe*>(context) = bytes(static_cast<const char*>(value), size); }

/// A tree by the calls of C.
class c_tree {
public:
    explicit c_tree(bristlecone_tree* handle) : handle_(handle) {
        bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
        OK(bristlecone_tree_get_info(handle, &info));
        key_kind = info.key_kind;
        value_kind = info.value_kind;
    }
    virtual ~c_tree() = default;
    bristlecone_tree* handle() const { return handle_; }
    virtual int close() { return bristlecone_tree_close(handle_); }

    virtual result one(const std::string& what, const bytes& key, const maybe& value, const maybe& expected) {
        result of;
        const void* v = value ? value->data() : nullptr;
        const size_t vs = value ? value->size() : 0;
        const void* e = expected ? expected->data() : nullptr;
        const size_t es = expected ? expected->size() : 0;
        if (what == "get") of.status = bristlecone_get_with(handle_, key.data(), key.size(), keep, &of.value);
        if (what == "put") of.status = bristlecone_put(handle_, key.data(), key.size(), v, vs);
        if (what == "exchange") of.status = bristlecone_exchange(handle_, key.data(), key.size(), v, vs, keep, &of.value);
        if (what == "insert") of.status = bristlecone_insert(handle_, key.data(), key.size(), v, vs, keep, &of.value);
        if (what == "update") of.status = bristlecone_update(handle_, key.data(), key.size(), v, vs, keep, &of.value);
        if (what == "remove") of.status = bristlecone_remove(handle_, key.data(), key.size(), keep, &of.value);
        if (what == "compare_and_swap") of.status = bristlecone_compare_and_swap(handle_, key.data(), key.size(), e, es, v, vs, keep, &of.value);
        return of;
    }
    virtual int contains(const bytes& key) { return bristlecone_contains(handle_, key.data(), key.size()); }
    virtual int remove_range(const bounds& of, const maybe& prefix, std::uint64_t* items) {
        const bristlecone_range range = of.c();
        return prefix ? bristlecone_remove_prefix(handle_, prefix->data(), prefix->size(), items) : bristlecone_remove_range(handle_, &range, items);
    }
    virtual int len(std::uint64_t* items) { return bristlecone_tree_len(handle_, items); }
    virtual result scan(const bounds& of, const bristlecone_snapshot* snapshot) {
        const bristlecone_range range = of.c();
        bristlecone_iter* iter = nullptr;
        const int status = snapshot ? bristlecone_snapshot_iter_open(snapshot, handle_, &range, &iter) : bristlecone_iter_open(handle_, &range, &iter);
        return status == BRISTLECONE_OK ? drained(iter, of) : result{status, {}, {}, {}};
    }
    virtual result prefix(const bytes& prefix, const bounds& of) {
        bristlecone_iter* iter = nullptr;
        const int status = bristlecone_iter_open_prefix(handle_, prefix.data(), prefix.size(), &iter);
        return status == BRISTLECONE_OK ? drained(iter, of) : result{status, {}, {}, {}};
    }
    virtual result get_many(const std::vector<bytes>& keys) {
        result of;
        of.many.resize(keys.size());
        const auto parts = parts_of(keys);
        const auto keep_at = [](void* context, size_t index, const void* value, size_t size) { keep(&(*static_cast<std::vector<maybe>*>(context))[index], value, size); };
        of.status = bristlecone_get_many(handle_, parts.data(), parts.size(), keep_at, &of.many);
        return of;
    }
    virtual int put_many(const std::vector<bytes>& keys, const std::vector<bytes>& values) {
        const auto of_keys = parts_of(keys), of_values = parts_of(values);
        return bristlecone_put_many(handle_, of_keys.data(), of_values.data(), of_keys.size(), nullptr);
    }
    int remove_many(const std::vector<bytes>& keys) {
        const auto parts = parts_of(keys);
        return bristlecone_remove_many(handle_, parts.data(), parts.size(), nullptr);
    }
    /// Adds a change to a batch, by a handle of the language.
    int change(const std::string& what, bristlecone_batch* batch, const bytes& key, const maybe& value) {
        if (what == "put") return bristlecone_batch_put(batch, handle_, key.data(), key.size(), value->data(), value->size());
        if (what == "remove") return bristlecone_batch_remove(batch, handle_, key.data(), key.size());
        return bristlecone_batch_expect(batch, handle_, key.data(), key.size(), value ? value->data() : nullptr, value ? value->size() : 0);
    }

    // Operations of handles that show only live values.
    virtual int expiry(const bytes&, std::uint64_t*) { fail("the tree has no times"); }
    virtual int set_expiry(const bytes&, std::uint64_t*) { fail("the tree has no times"); }
    virtual int remove_expired(std::uint64_t, bristlecone::expired_removal*) { fail("the tree has no times"); }
    virtual std::uint64_t expire_after() {
        bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
        OK(bristlecone_tree_get_info(handle_, &info));
        return info.expire_after_ms;
    }
    /// Returns the tree by a handle that shows only live values.
    virtual int live(std::unique_ptr<c_tree>& to);

    std::string key_kind, value_kind;
    /// The expiry of the next write.
    std::uint64_t expires = BRISTLECONE_DEFAULT_EXPIRY;

private:
    static std::vector<bristlecone_bytes> parts_of(const std::vector<bytes>& data) {
        std::vector<bristlecone_bytes> parts;
        for (const bytes& each : data) parts.push_back({each.data(), each.size()});
        return parts;
    }
    static result drained(bristlecone_iter* iter, const bounds& of) {
        result found;
        const void *key = nullptr, *value = nullptr;
        size_t key_bytes = 0, value_bytes = 0;
        while (found.items.size() < of.limit) {
            const int status = of.reverse ? bristlecone_iter_next_back(iter, &key, &key_bytes, &value, &value_bytes)
                                          : bristlecone_iter_next(iter, &key, &key_bytes, &value, &value_bytes);
            if (status == BRISTLECONE_ABSENT) break;
            CHECK(status == BRISTLECONE_OK);
            found.items.emplace_back(bytes(static_cast<const char*>(key), key_bytes), bytes(static_cast<const char*>(value), value_bytes));
        }
        OK(bristlecone_iter_close(iter));
        return found;
    }

    bristlecone_tree* handle_;
};

/// A tree whose values expire, by the calls of C.
class c_expiring : public c_tree {
public:
    explicit c_expiring(bristlecone_tree* handle) : c_tree(handle) {}

    result one(const std::string& what, const bytes& key, const maybe& value, const maybe& expected) override {
        result of;
        const void* v = value ? value->data() : nullptr;
        const size_t vs = value ? value->size() : 0;
        const void* e = expected ? expected->data() : nullptr;
        const size_t es = expected ? expected->size() : 0;
        const std::uint64_t at = expires;
        bristlecone_tree* in = handle();
        // The calls without an expiry use that of the tree.
        if (at == BRISTLECONE_DEFAULT_EXPIRY || what == "get" || what == "remove") return c_tree::one(what, key, value, expected);
        if (what == "put") of.status = bristlecone_expiring_put(in, key.data(), key.size(), v, vs, at);
        if (what == "exchange") of.status = bristlecone_expiring_exchange(in, key.data(), key.size(), v, vs, at, keep, &of.value);
        if (what == "insert") of.status = bristlecone_expiring_insert(in, key.data(), key.size(), v, vs, at, keep, &of.value);
        if (what == "update") of.status = bristlecone_expiring_update(in, key.data(), key.size(), v, vs, at, keep, &of.value);
        if (what == "compare_and_swap") of.status = bristlecone_expiring_compare_and_swap(in, key.data(), key.size(), e, es, v, vs, at, keep, &of.value);
        return of;
    }
    int expiry(const bytes& key, std::uint64_t* ms) override { return bristlecone_expiry(handle(), key.data(), key.size(), ms); }
    int set_expiry(const bytes& key, std::uint64_t* ms) override { return bristlecone_set_expiry(handle(), key.data(), key.size(), expires, ms); }
    int remove_expired(std::uint64_t budget, bristlecone::expired_removal* pass) override {
        int complete = 0;
        const int status = bristlecone_remove_expired(handle(), budget, &pass->examined, &pass->removed, &complete);
        pass->is_complete = complete != 0;
        return status;
    }
};

inline int c_tree::live(std::unique_ptr<c_tree>& to) {
    bristlecone_tree* opened = nullptr;
    const int status = bristlecone_tree_expiring(handle_, &opened);
    if (status == BRISTLECONE_OK) to = std::make_unique<c_expiring>(opened);
    return status;
}

template <class F>
result caught(F&& work) {
    result of;
    try {
        work(of);
    } catch (const bristlecone::error& error) {
        of.status = error.status();
    }
    return of;
}

template <class T>
bytes stored(const typename bristlecone::codec<T>::owned& value) {
    bytes found;
    bristlecone::codec<T>::with(value, [&](const void* data, std::size_t size) { found.assign(static_cast<const char*>(data), size); });
    return found;
}

template <class T>
std::optional<typename bristlecone::codec<T>::owned> owned(const maybe& value) {
    if (!value) return std::nullopt;
    return bristlecone::codec<T>::read(value->data(), value->size());
}

/// Returns the items of a range of C++.
template <class K, class V>
void gather(bristlecone::range<K, V> range, const bounds& of, result& found) {
    while (found.items.size() < of.limit) {
        const auto next = of.reverse ? range.next_back() : range.next();
        if (!next) break;
        found.items.emplace_back(stored<K>(next->first), stored<V>(next->second));
    }
}

/// Opens a range with bounds that C++ has.
template <class K, class Tree>
auto opened_range(const Tree& tree, const bounds& of) {
    const auto key = [](const maybe& bound) { return bristlecone::codec<K>::read(bound->data(), bound->size()); };
    if (!of.from && !of.to) return tree.range();
    if (!of.to) return tree.from(key(of.from));
    if (!of.from) return tree.below(key(of.to));
    return tree.range(key(of.from), key(of.to));
}

/// A tree whose values expire, by bristlecone.hpp.
template <class K, class V>
class cpp_expiring : public c_expiring {
    using keys = bristlecone::codec<K>;
    using tree_type = bristlecone::expiring_tree<K, V>;

public:
    explicit cpp_expiring(tree_type tree) : c_expiring(tree.c_handle()), tree_(std::move(tree)) {}
    int close() override {
        tree_.reset();
        return BRISTLECONE_OK;
    }
    result one(const std::string& what, const bytes& key, const maybe& value, const maybe& expected) override {
        return caught([&](result& of) {
            const auto k = keys::read(key.data(), key.size());
            const auto v = owned<V>(value), e = owned<V>(expected);
            const auto at = bristlecone::expiry::from_millis(expires);
            std::optional<typename bristlecone::codec<V>::owned> old;
            if (what == "get") old = tree_->get(k), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "put") tree_->put(k, *v, at);
            if (what == "exchange") old = tree_->exchange(k, *v, at);
            if (what == "insert" && !tree_->insert(k, *v, at)) old = tree_->get(k), of.status = BRISTLECONE_PRESENT;
            if (what == "update") old = tree_->update(k, *v, at), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "remove") old = tree_->remove(k), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "compare_and_swap") of.status = tree_->compare_and_swap(k, e, v, at, &old) ? BRISTLECONE_OK : BRISTLECONE_DIFFERS;
            if (old) of.value = stored<V>(*old);
        });
    }
    int contains(const bytes& key) override {
        return caught([&](result& of) { of.status = tree_->contains(keys::read(key.data(), key.size())) ? BRISTLECONE_OK : BRISTLECONE_ABSENT; }).status;
    }
    result scan(const bounds& of, const bristlecone_snapshot* snapshot) override {
        if (snapshot || of.flags != 0) return c_tree::scan(of, snapshot);
        return caught([&](result& found) { gather<K, V>(opened_range<K>(*tree_, of), of, found); });
    }
    int expiry(const bytes& key, std::uint64_t* ms) override {
        return timed(ms, [&] { return tree_->expires(keys::read(key.data(), key.size())); });
    }
    int set_expiry(const bytes& key, std::uint64_t* ms) override {
        return timed(ms, [&] { return tree_->set_expiry(keys::read(key.data(), key.size()), bristlecone::expiry::from_millis(expires)); });
    }
    int remove_expired(std::uint64_t budget, bristlecone::expired_removal* pass) override {
        return caught([&](result&) { *pass = tree_->remove_expired(budget); }).status;
    }
    std::uint64_t expire_after() override {
        const auto time = tree_->expire_after();
        return time ? static_cast<std::uint64_t>(time->count()) : 0;
    }

private:
    template <class F>
    static int timed(std::uint64_t* ms, F&& get) {
        return caught([&](result& of) {
            const std::optional<bristlecone::expiry> at = get();
            of.status = at ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (at) *ms = at->millis();
        }).status;
    }

    std::optional<tree_type> tree_;
};

template <class K, class V>
int cpp_live(const bristlecone::tree<K, bristlecone::expiring<V>>& tree, std::unique_ptr<c_tree>& to) {
    return caught([&](result&) { to = std::make_unique<cpp_expiring<K, V>>(bristlecone::expiring_tree<K, V>(tree)); }).status;
}

/// The compiler refuses other trees.
template <class K, class V>
int cpp_live(const bristlecone::tree<K, V>& tree, std::unique_ptr<c_tree>& to) {
    return c_tree(tree.c_handle()).live(to);
}

/// A tree by bristlecone.hpp. Ranges with other bounds, batches, snapshots and transactions use its handle of C.
template <class K, class V>
class cpp_tree : public c_tree {
    using keys = bristlecone::codec<K>;
    using values = bristlecone::codec<V>;
    using tree_type = bristlecone::tree<K, V>;

public:
    explicit cpp_tree(tree_type tree) : c_tree(tree.c_handle()), tree_(std::move(tree)) {}
    int live(std::unique_ptr<c_tree>& to) override { return cpp_live(*tree_, to); }
    int close() override {
        tree_.reset();
        return BRISTLECONE_OK;
    }
    result one(const std::string& what, const bytes& key, const maybe& value, const maybe& expected) override {
        return caught([&](result& of) {
            const auto k = keys::read(key.data(), key.size());
            const auto v = owned<V>(value), e = owned<V>(expected);
            std::optional<typename values::owned> old;
            if (what == "get") old = tree_->get(k), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "put") tree_->put(k, *v);
            if (what == "exchange") old = tree_->exchange(k, *v);
            if (what == "insert" && !tree_->insert(k, *v)) old = tree_->get(k), of.status = BRISTLECONE_PRESENT;
            if (what == "update") old = tree_->update(k, *v), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "remove") old = tree_->remove(k), of.status = old ? BRISTLECONE_OK : BRISTLECONE_ABSENT;
            if (what == "compare_and_swap") of.status = tree_->compare_and_swap(k, e, v, &old) ? BRISTLECONE_OK : BRISTLECONE_DIFFERS;
            if (old) of.value = stored<V>(*old);
        });
    }
    int contains(const bytes& key) override {
        return caught([&](result& of) { of.status = tree_->contains(keys::read(key.data(), key.size())) ? BRISTLECONE_OK : BRISTLECONE_ABSENT; }).status;
    }
    int remove_range(const bounds& of, const maybe& prefix, std::uint64_t* items) override {
        if (of.flags != 0) return c_tree::remove_range(of, prefix, items);
        return caught([&](result&) {
            const auto key = [](const maybe& bound) { return keys::read(bound->data(), bound->size()); };
            if (prefix) {
                if constexpr (std::is_same_v<K, std::string>) *items = tree_->remove_prefix(*prefix);
                else throw bristlecone::error(BRISTLECONE_USAGE, "prefixes are of strings");
            } else if (!of.from && !of.to) *items = tree_->clear();
            else if (!of.to) *items = tree_->remove_from(key(of.from));
            else if (!of.from) *items = tree_->remove_below(key(of.to));
            else *items = tree_->remove_range(key(of.from), key(of.to));
        }).status;
    }
    int len(std::uint64_t* items) override {
        return caught([&](result&) { *items = tree_->size(); }).status;
    }
    result scan(const bounds& of, const bristlecone_snapshot* snapshot) override {
        if (snapshot || of.flags != 0) return c_tree::scan(of, snapshot);
        return caught([&](result& found) { gather<K, V>(opened_range<K>(*tree_, of), of, found); });
    }

private:
    std::optional<tree_type> tree_;
};

}  // namespace

#endif
