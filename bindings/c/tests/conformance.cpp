// The table of all languages, for every design, by the calls of bristlecone.h and, for the types below, by
// bristlecone.hpp: see bindings/conformance/README.md.
#include "check.h"

#include <bristlecone.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

namespace {

// ---- JSON

struct json {
    enum { null, boolean, number, text, list, object } type = null;
    bool is = false;
    std::string word;
    std::vector<json> elements;
    std::map<std::string, json> members;

    bool has(const std::string& name) const { return members.count(name) != 0; }
    const json& operator[](const std::string& name) const { return members.at(name); }
    std::string name(const std::string& member, const std::string& otherwise = "") const {
        return has(member) ? members.at(member).word : otherwise;
    }
    bool flag(const std::string& member) const { return has(member) && members.at(member).is; }
};

[[noreturn]] void fail(const std::string& what) {
    fprintf(stderr, "conformance.cpp: %s\n", what.c_str());
    exit(1);
}

struct parser {
    const std::string& from;
    std::size_t at = 0;

    char next() {
        while (at < from.size() && isspace(static_cast<unsigned char>(from[at]))) ++at;
        return at < from.size() ? from[at] : '\0';
    }
    void skip(char expected) {
        if (next() != expected) fail("the table is no JSON");
        ++at;
    }
    unsigned hex() {
        const unsigned code = static_cast<unsigned>(std::stoul(from.substr(at, 4), nullptr, 16));
        at += 4;
        return code;
    }
    void put_utf8(std::string& to, unsigned code) {
        const auto tail = [&](unsigned bits) { to.push_back(static_cast<char>(0x80 | ((code >> bits) & 0x3f))); };
        if (code < 0x80) {
            to.push_back(static_cast<char>(code));
        } else if (code < 0x800) {
            to.push_back(static_cast<char>(0xc0 | code >> 6));
            tail(0);
        } else if (code < 0x10000) {
            to.push_back(static_cast<char>(0xe0 | code >> 12));
            tail(6), tail(0);
        } else {
            to.push_back(static_cast<char>(0xf0 | code >> 18));
            tail(12), tail(6), tail(0);
        }
    }
    void escape(std::string& to) {
        static const std::map<char, char> plain{{'n', '\n'}, {'t', '\t'}, {'r', '\r'}, {'b', '\b'}, {'f', '\f'}};
        const char what = from[at++];
        if (what != 'u') {
            to.push_back(plain.count(what) ? plain.at(what) : what);
            return;
        }
        unsigned code = hex();
        if (code >= 0xd800 && code < 0xdc00) {
            at += 2;
            code = 0x10000 + ((code - 0xd800) << 10) + (hex() - 0xdc00);
        }
        put_utf8(to, code);
    }
    std::string string() {
        std::string found;
        skip('"');
        while (from[at] != '"') {
            const char it = from[at++];
            if (it == '\\') {
                escape(found);
            } else {
                found.push_back(it);
            }
        }
        ++at;
        return found;
    }
    json value() {
        json found;
        const char begin = next();
        if (begin == '{') {
            found.type = json::object;
            for (++at; next() != '}';) {
                const std::string name = string();
                skip(':');
                found.members.emplace(name, value());
                if (next() == ',') ++at;
            }
            ++at;
        } else if (begin == '[') {
            found.type = json::list;
            for (++at; next() != ']';) {
                found.elements.push_back(value());
                if (next() == ',') ++at;
            }
            ++at;
        } else if (begin == '"') {
            found.type = json::text;
            found.word = string();
        } else {
            const std::size_t end = from.find_first_of(",]} \n", at);
            found.word = from.substr(at, end - at);
            at = end;
            found.type = found.word == "null" ? json::null : found.word == "true" || found.word == "false" ? json::boolean : json::number;
            found.is = found.word == "true";
        }
        return found;
    }
};

// ---- keys and values as bytes

using bytes = std::string;
using maybe = std::optional<bytes>;
using item = std::pair<bytes, bytes>;

std::vector<std::string> elements_of(const std::string& kind) {
    std::vector<std::string> kinds(1);
    int depth = 0;
    const std::size_t end = kind.size() - (kind.size() > 1 && kind[kind.size() - 2] == ',' ? 2 : 1);
    for (std::size_t at = 1; at < end; ++at) {
        const char it = kind[at];
        depth += strchr("(<[", it) ? 1 : strchr(")>]", it) ? -1 : 0;
        if (it == ',' && depth == 0) {
            kinds.emplace_back();
            ++at;
        } else {
            kinds.back().push_back(it);
        }
    }
    return kinds;
}

template <class T>
bytes raw(T value) {
    return bytes(reinterpret_cast<const char*>(&value), sizeof(value));
}

__extension__ typedef __int128 wide;
__extension__ typedef unsigned __int128 unsigned_wide;

wide integer(const std::string& digits) {
    const bool is_negative = digits[0] == '-';
    unsigned_wide value = 0;
    for (const char digit : digits.substr(is_negative ? 1 : 0)) value = value * 10 + static_cast<unsigned>(digit - '0');
    return static_cast<wide>(is_negative ? 0 - value : value);
}

bytes unhex(const std::string& digits) {
    bytes found;
    for (std::size_t at = 0; at + 1 < digits.size(); at += 2) found.push_back(static_cast<char>(std::stoi(digits.substr(at, 2), nullptr, 16)));
    return found;
}

std::uint32_t code_point(const std::string& text) {
    const unsigned char first = static_cast<unsigned char>(text[0]);
    std::uint32_t code = first < 0x80 ? first : first < 0xe0 ? first & 0x1f : first < 0xf0 ? first & 0xf : first & 7;
    for (std::size_t at = 1; at < text.size(); ++at) code = code << 6 | (static_cast<unsigned char>(text[at]) & 0x3f);
    return code;
}

bytes packed(const std::string& kind, const json& value);

bytes datum_of_text(const std::string& kind, const std::string& text) {
    const bool is_bits = text.rfind("0x", 0) == 0;
    if (kind == "str" || kind == "json") return text;
    if (kind == "bytes" || kind == "postcard" || kind[0] == '[') return unhex(text);
    if (kind == "char") return raw(code_point(text));
    if (kind == "f64") return is_bits ? raw(static_cast<std::uint64_t>(std::stoull(text, nullptr, 16))) : raw(strtod(text.c_str(), nullptr));
    if (kind == "f32") return is_bits ? raw(static_cast<std::uint32_t>(std::stoul(text, nullptr, 16))) : raw(strtof(text.c_str(), nullptr));
    return raw(integer(text)).substr(0, std::stoul(kind.substr(1)) / 8);
}

bytes datum(const std::string& kind, const json& value) {
    if (value.has("kind")) return datum(value.name("kind"), value["datum"]);
    if (value.has("times")) {
        std::string text;
        for (unsigned long left = std::stoul(value["times"].word); left > 0; --left) text += value.name("repeat");
        return datum_of_text(kind, text);
    }
    if (kind == "()") return "";
    if (kind == "bool") return bytes(1, value.is ? '\1' : '\0');
    if (kind.rfind("Option<", 0) == 0) {
        const std::string inner = kind.substr(7, kind.size() - 8);
        return value.type == json::null ? bytes(1, '\0') : bytes(1, '\1') + packed(inner, value.elements[0]);
    }
    if (kind[0] != '(') return datum_of_text(kind, value.word);
    bytes found;
    const auto kinds = elements_of(kind);
    for (std::size_t at = 0; at < kinds.size(); ++at) found += packed(kinds[at], value.elements[at]);
    return found;
}

bytes packed(const std::string& kind, const json& value) {
    const bytes found = datum(kind, value);
    return kind == "str" || kind == "bytes" ? raw(static_cast<std::uint64_t>(found.size())) + found : found;
}

bool is_of_another_kind(const json& step) {
    return std::any_of(step.members.begin(), step.members.end(), [](const auto& member) { return member.second.has("kind"); });
}

// ---- trees

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

    std::string key_kind, value_kind;

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

/// A tree by bristlecone.hpp. Ranges with other bounds, batches, snapshots and transactions use its handle of C.
template <class K, class V>
class cpp_tree : public c_tree {
    using keys = bristlecone::codec<K>;
    using values = bristlecone::codec<V>;
    using tree_type = bristlecone::tree<K, V>;

public:
    explicit cpp_tree(tree_type tree) : c_tree(tree.c_handle()), tree_(std::move(tree)) {}
    int close() override {
        tree_.reset();
        return BRISTLECONE_OK;
    }
    result one(const std::string& what, const bytes& key, const maybe& value, const maybe& expected) override {
        return caught([&](result& of) {
            const auto k = keys::read(key.data(), key.size());
            const std::optional<typename values::owned> v = owned(value), e = owned(expected);
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
        return caught([&](result& found) {
            auto range = opened(of);
            while (found.items.size() < of.limit) {
                const auto next = of.reverse ? range.next_back() : range.next();
                if (!next) break;
                found.items.emplace_back(stored<K>(next->first), stored<V>(next->second));
            }
        });
    }

private:
    template <class F>
    static result caught(F&& work) {
        result of;
        try {
            work(of);
        } catch (const bristlecone::error& error) {
            of.status = error.status();
        }
        return of;
    }
    template <class T>
    static bytes stored(const typename bristlecone::codec<T>::owned& value) {
        bytes found;
        bristlecone::codec<T>::with(value, [&](const void* data, std::size_t size) { found.assign(static_cast<const char*>(data), size); });
        return found;
    }
    static std::optional<typename values::owned> owned(const maybe& value) {
        if (!value) return std::nullopt;
        return values::read(value->data(), value->size());
    }
    bristlecone::range<K, V> opened(const bounds& of) const {
        if (!of.from && !of.to) return tree_->range();
        if (!of.to) return tree_->from(keys::read(of.from->data(), of.from->size()));
        if (!of.from) return tree_->below(keys::read(of.to->data(), of.to->size()));
        return tree_->range(keys::read(of.from->data(), of.from->size()), keys::read(of.to->data(), of.to->size()));
    }

    std::optional<tree_type> tree_;
};

// ---- the steps of a case

using opened = std::pair<int, std::unique_ptr<c_tree>>;
using opener = std::function<opened(const bristlecone::pool&, const std::string& name, const std::string& design)>;

template <class K, class V>
opener typed() {
    return [](const bristlecone::pool& pool, const std::string& name, const std::string& design) -> opened {
        try {
            auto tree = design.empty() ? pool.tree<K, V>(name) : pool.create_tree<K, V>(name, design);
            return {BRISTLECONE_OK, std::make_unique<cpp_tree<K, V>>(std::move(tree))};
        } catch (const bristlecone::error& error) {
            return {error.status(), nullptr};
        }
    };
}

const std::map<std::pair<std::string, std::string>, opener>& typed_trees() {
    using named = std::pair<std::string, std::uint64_t>;
    using four = std::array<std::uint8_t, 4>;
    using nested = std::tuple<std::string, std::optional<std::tuple<std::uint64_t, four>>>;
    static const std::map<std::pair<std::string, std::string>, opener> all{
        {{"u64", "u64"}, typed<std::uint64_t, std::uint64_t>()},
        {{"u8", "u8"}, typed<std::uint8_t, std::uint8_t>()},
        {{"i8", "i8"}, typed<std::int8_t, std::int8_t>()},
        {{"u32", "u32"}, typed<std::uint32_t, std::uint32_t>()},
        {{"i64", "i64"}, typed<std::int64_t, std::int64_t>()},
        {{"i64", "u64"}, typed<std::int64_t, std::uint64_t>()},
        {{"f32", "f32"}, typed<float, float>()},
        {{"f64", "f64"}, typed<double, double>()},
        {{"f64", "u64"}, typed<double, std::uint64_t>()},
        {{"bool", "bool"}, typed<bool, bool>()},
        {{"char", "char"}, typed<char32_t, char32_t>()},
        {{"()", "()"}, typed<std::monostate, std::monostate>()},
        {{"str", "str"}, typed<std::string, std::string>()},
        {{"str", "u64"}, typed<std::string, std::uint64_t>()},
        {{"u64", "str"}, typed<std::uint64_t, std::string>()},
        {{"u64", "json"}, typed<std::uint64_t, bristlecone::json>()},
        {{"bytes", "bytes"}, typed<bristlecone::bytes, bristlecone::bytes>()},
        {{"bytes", "f64"}, typed<bristlecone::bytes, double>()},
        {{"[u8; 4]", "[u8; 4]"}, typed<four, four>()},
        {{"Option<u64>", "Option<u64>"}, typed<std::optional<std::uint64_t>, std::optional<std::uint64_t>>()},
        {{"(str, u64)", "(str, u64)"}, typed<named, named>()},
        {{"(str, Option<(u64, [u8; 4])>)", "(str, Option<(u64, [u8; 4])>)"}, typed<nested, nested>()},
    };
    return all;
}

const char* status_name(int status) {
    switch (status) {
    case BRISTLECONE_OK: return "ok";
    case BRISTLECONE_USAGE: return "usage";
    case BRISTLECONE_IN_USE: return "in_use";
    case BRISTLECONE_ABSENT: return "absent";
    case BRISTLECONE_PRESENT: return "present";
    case BRISTLECONE_DIFFERS: return "differs";
    case BRISTLECONE_READ_ONLY: return "read_only";
    case BRISTLECONE_CONFLICT: return "conflict";
    case BRISTLECONE_SNAPSHOT_TOO_OLD: return "snapshot_too_old";
    default: return bristlecone_strerror(status);
    }
}

class runner {
public:
    runner(const std::string& path, const std::string& design, bool is_typed, bool has_journal)
        : path_(path), design_(design), is_typed_(is_typed), has_journal_(has_journal) {
        reopen(BRISTLECONE_CREATE);
    }
    ~runner() { close_pool(); }

    /// Makes a step; returns how it differs from the table.
    std::string run(const json& step) {
        result of;
        std::string text;
        of.status = make(step, of, text);
        const std::string expected = step.name("is", "ok");
        if (expected != status_name(of.status)) return std::string("the status is ") + status_name(of.status) + ": " + bristlecone_errmsg();
        return differ(step, of, text);
    }

private:
    c_tree& tree(const json& step) { return *trees_.at(step.name("on")); }

    maybe argument(const json& step, const std::string& name, const std::string& kind) {
        return step.has(name) ? maybe(datum(kind, step[name])) : std::nullopt;
    }

    int make(const json& step, result& of, std::string& text) {
        const std::string what = step.name("do"), other = step.name("in", step.name("of"));
        if (step.has("in")) return transactions_.count(other) ? within(step, transactions_[other], of) : then(step, snapshots_[other], of);
        if (what == "begin") return bristlecone_transaction_begin(pool_, &transactions_[step.name("as")]);
        if (what == "commit") return bristlecone_transaction_commit(transactions_[other]);
        if (what == "rollback") return bristlecone_transaction_rollback(transactions_[other]);
        if (what == "snapshot") return bristlecone_snapshot_open(pool_, 0, &snapshots_[step.name("as")]);
        if (what == "release") return bristlecone_snapshot_close(snapshots_[other]);
        if (what == "batch") return batch(step);
        if (what == "changes") return changes(text);
        static const std::vector<std::string> managing{"create", "open", "close", "drop", "rename", "clear", "trees", "check", "reopen", "close_pool"};
        if (std::find(managing.begin(), managing.end(), what) != managing.end()) return manage(step, what, text);
        return on_tree(step, what, of, text);
    }

    int manage(const json& step, const std::string& what, std::string& text) {
        const std::string name = step.name("on");
        if (what == "create") return open(name, step.name("key_kind"), step.name("value_kind"), step.name("design", design_));
        if (what == "open") return open(name, step.name("key_kind"), step.name("value_kind"), "");
        if (what == "close") return trees_.at(name)->close();
        if (what == "drop") return bristlecone_pool_drop_tree(pool_, name.c_str());
        if (what == "rename") return bristlecone_pool_rename_tree(pool_, name.c_str(), step.name("to").c_str());
        if (what == "clear") return bristlecone_pool_clear_tree(pool_, name.c_str());
        if (what == "trees") return list(text);
        if (what == "check") {
            OK(bristlecone_pool_check(pool_, nullptr, nullptr));
            for (const auto& [_, tree] : trees_) OK(bristlecone_tree_check(tree->handle(), nullptr, nullptr));
            return BRISTLECONE_OK;
        }
        close_pool();
        if (what == "reopen") reopen(step.flag("read_only") ? BRISTLECONE_READ : 0);
        return BRISTLECONE_OK;
    }

    int open(const std::string& name, const std::string& keys, const std::string& values, const std::string& design) {
        const auto known = typed_trees().find({keys, values});
        if (is_typed_ && known != typed_trees().end()) {
            auto [status, tree] = known->second(*pool, name, design);
            if (status == BRISTLECONE_OK) trees_[name] = std::move(tree);
            return status;
        }
        bristlecone_tree_options options = BRISTLECONE_TREE_OPTIONS_INIT;
        options.design = design.c_str();
        bristlecone_tree* opened = nullptr;
        const int status = !design.empty()  ? bristlecone_tree_create(pool_, name.c_str(), keys.c_str(), values.c_str(), &options, &opened)
                           : !keys.empty() ? bristlecone_tree_open_or_create(pool_, name.c_str(), keys.c_str(), values.c_str(), &opened)
                                           : bristlecone_tree_open(pool_, name.c_str(), &opened);
        if (status == BRISTLECONE_OK) trees_[name] = std::make_unique<c_tree>(opened);
        return status;
    }

    int list(std::string& text) {
        std::vector<std::string> found;
        const auto note = [](void* context, const char* name, const char* keys, const char* values, const char*) {
            static_cast<std::vector<std::string>*>(context)->push_back(std::string(name) + "|" + keys + "|" + values + ";");
        };
        const int status = bristlecone_pool_trees(pool_, note, &found);
        std::sort(found.begin(), found.end());
        for (const std::string& each : found) text += each;
        return status;
    }

    /// A change in one line. A key or a value is in hexadecimal digits behind the length.
    static std::string line_of(const std::string& what, const std::string& tree, const maybe& key, const maybe& value, const std::string& existed, const std::string& renamed_to) {
        std::string line = what + " " + tree;
        for (const maybe* stored : {&key, &value}) {
            if (!*stored) continue;
            line += " " + std::to_string((*stored)->size()) + ":";
            for (const char each : **stored) line += "0123456789abcdef"[(each >> 4) & 15], line += "0123456789abcdef"[each & 15];
        }
        return line + " " + existed + " " + renamed_to + ";";
    }

    int changes(std::string& text) {
        static const char* const names[] = {"", "put", "remove", "create", "drop", "rename", "clear", "other"};
        bristlecone_changes* stream = nullptr;
        int status = bristlecone_changes_open(pool_, 0, &stream);
        if (status != BRISTLECONE_OK) return status;
        bristlecone_change of = BRISTLECONE_CHANGE_INIT;
        while ((status = bristlecone_changes_next(stream, 0, &of)) == BRISTLECONE_OK) {
            const bool is_put = of.what == BRISTLECONE_CHANGE_PUT, has_key = is_put || of.what == BRISTLECONE_CHANGE_REMOVE;
            const maybe key = has_key ? maybe(bytes(static_cast<const char*>(of.key), of.key_bytes)) : std::nullopt;
            const maybe value = is_put ? maybe(bytes(static_cast<const char*>(of.value), of.value_bytes)) : std::nullopt;
            const char* existed = of.existed == 1 ? "true" : of.existed == 0 ? "false" : "";
            text += line_of(names[of.what], of.tree, key, value, existed, of.renamed_to ? of.renamed_to : "");
            if (of.is_last) text += "\n";
        }
        OK(bristlecone_changes_close(stream));
        return status == BRISTLECONE_ABSENT ? BRISTLECONE_OK : status;
    }

    int batch(const json& step) {
        bristlecone_batch* batch = nullptr;
        int status = bristlecone_batch_begin(pool_, &batch);
        for (const json& change : step["changes"].elements) {
            c_tree& of = tree(change);
            if (status == BRISTLECONE_OK) status = of.change(change.name("do"), batch, datum(of.key_kind, change["key"]), argument(change, "value", of.value_kind));
        }
        if (status == BRISTLECONE_OK) return bristlecone_batch_commit(batch);
        OK(bristlecone_batch_discard(batch));
        return status;
    }

    bounds bounds_of(const json& step, const std::string& kind) {
        bounds of{argument(step, "from", kind), argument(step, "end", kind), 0, step.flag("reverse"), SIZE_MAX};
        if (step.flag("from_excluded")) of.flags |= BRISTLECONE_FROM_EXCLUDED;
        if (step.flag("end_included")) of.flags |= BRISTLECONE_TO_INCLUDED;
        if (step.has("limit")) of.limit = std::stoul(step["limit"].word);
        return of;
    }

    template <class Get>
    static int copied(maybe& value, Get&& get) {
        size_t size = 0;
        bytes to(16, '\0');
        int status = get(to.data(), to.size(), &size);
        if (status == BRISTLECONE_TOO_SMALL) {
            to.resize(size);
            status = get(to.data(), to.size(), &size);
        }
        if (status == BRISTLECONE_OK) value = to.substr(0, size);
        return status;
    }

    int within(const json& step, bristlecone_transaction* transaction, result& of) {
        c_tree& in = tree(step);
        const std::string what = step.name("do");
        if (what == "scan") {
            const bounds range = bounds_of(step, in.key_kind);
            const bristlecone_range c = range.c();
            struct gathered {
                std::vector<item>& items;
                std::size_t limit;
            } to{of.items, range.limit};
            const auto add = [](void* context, const void* key, size_t key_bytes, const void* value, size_t value_bytes) -> int {
                auto* self = static_cast<gathered*>(context);
                self->items.emplace_back(bytes(static_cast<const char*>(key), key_bytes), bytes(static_cast<const char*>(value), value_bytes));
                return self->items.size() >= self->limit;
            };
            return bristlecone_transaction_scan(transaction, in.handle(), &c, add, &to);
        }
        const bytes key = datum(in.key_kind, step["key"]);
        if (what == "get") {
            return copied(of.value, [&](void* to, size_t capacity, size_t* size) {
                return bristlecone_transaction_get(transaction, in.handle(), key.data(), key.size(), to, capacity, size);
            });
        }
        if (what == "remove") return bristlecone_transaction_remove(transaction, in.handle(), key.data(), key.size());
        const bytes value = datum(in.value_kind, step["value"]);
        return bristlecone_transaction_put(transaction, in.handle(), key.data(), key.size(), value.data(), value.size());
    }

    int then(const json& step, bristlecone_snapshot* snapshot, result& of) {
        c_tree& in = tree(step);
        if (step.name("do") == "scan") {
            of = in.scan(bounds_of(step, in.key_kind), snapshot);
            return of.status;
        }
        const bytes key = datum(in.key_kind, step["key"]);
        return copied(of.value, [&](void* to, size_t capacity, size_t* size) {
            return bristlecone_snapshot_get(snapshot, in.handle(), key.data(), key.size(), to, capacity, size);
        });
    }

    int on_tree(const json& step, const std::string& what, result& of, std::string& text) {
        c_tree& in = tree(step);
        std::vector<bytes> keys, values;
        if (step.has("keys")) {
            for (const json& key : step["keys"].elements) keys.push_back(datum(in.key_kind, key));
        }
        if (step.has("items")) {
            for (const json& each : step["items"].elements) {
                keys.push_back(datum(in.key_kind, each.elements[0]));
                values.push_back(datum(in.value_kind, each.elements[1]));
            }
        }
        if (what == "scan") of = is_of_another_kind(step) ? in.c_tree::scan(bounds_of(step, in.key_kind), nullptr) : in.scan(bounds_of(step, in.key_kind), nullptr);
        else if (what == "prefix") of = in.prefix(datum(in.key_kind, step["prefix"]), bounds_of(step, in.key_kind));
        else if (what == "get_many") of = in.get_many(keys);
        else if (what == "put_many") of.status = in.put_many(keys, values);
        else if (what == "remove_many") of.status = in.remove_many(keys);
        else if (what == "remove_range" || what == "remove_prefix") {
            std::uint64_t items = 0;
            const maybe prefix = argument(step, "prefix", in.key_kind);
            of.status = is_of_another_kind(step) ? in.c_tree::remove_range(bounds_of(step, in.key_kind), prefix, &items) : in.remove_range(bounds_of(step, in.key_kind), prefix, &items);
            if (of.status == BRISTLECONE_OK) text = std::to_string(items);
        } else if (what == "len") {
            std::uint64_t items = 0;
            of.status = in.len(&items);
            text = std::to_string(items);
        } else if (what == "contains") {
            const bytes key = datum(in.key_kind, step["key"]);
            const int status = is_of_another_kind(step) ? in.c_tree::contains(key) : in.contains(key);
            text = status == BRISTLECONE_OK ? "true" : "false";
            of.status = status == BRISTLECONE_ABSENT ? BRISTLECONE_OK : status;
        } else {
            const maybe value = argument(step, what == "compare_and_swap" ? "wanted" : "value", in.value_kind);
            const maybe expected = argument(step, "expected", in.value_kind);
            const bytes key = datum(in.key_kind, step["key"]);
            of = is_of_another_kind(step) ? in.c_tree::one(what, key, value, expected) : in.one(what, key, value, expected);
        }
        return of.status;
    }

    std::string differ(const json& step, const result& of, const std::string& text) {
        static const json none;
        const json& wanted = step.has("gives") ? step["gives"] : none;
        const std::string what = step.name("do");
        if (step.name("is", "ok") != "ok" && !of.value) return step.has("gives") ? "nothing was returned" : "";
        if (what == "len" || what == "contains" || what == "remove_range" || what == "remove_prefix") return text == wanted.word ? "" : "returned " + text;
        if (what == "trees") {
            std::string expected;
            for (const json& each : wanted.elements) expected += each.elements[0].word + "|" + each.elements[1].word + "|" + each.elements[2].word + ";";
            return text == expected ? "" : "returned " + text;
        }
        if (what == "changes") {
            std::string expected;
            for (const json& commit : wanted.elements) {
                for (const json& each : commit.elements) {
                    const std::string existed = each.has("existed") ? each["existed"].word : "";
                    expected += line_of(each.name("what"), each.name("tree"), argument(each, "key", step.name("key_kind")), argument(each, "value", step.name("value_kind")), existed, each.name("renamed_to"));
                }
                expected += "\n";
            }
            return text == expected ? "" : "returned " + text + "instead of " + expected;
        }
        if (what == "scan" || what == "prefix") {
            std::vector<item> expected;
            for (const json& each : wanted.elements) expected.emplace_back(datum(tree(step).key_kind, each.elements[0]), datum(tree(step).value_kind, each.elements[1]));
            return of.items == expected ? "" : "other items, " + std::to_string(of.items.size());
        }
        if (what == "get_many") {
            std::vector<maybe> expected;
            for (const json& each : wanted.elements) expected.push_back(each.has("absent") ? std::nullopt : maybe(datum(tree(step).value_kind, each)));
            return of.many == expected ? "" : "other values";
        }
        if (of.value.has_value() != step.has("gives")) return of.value ? "a value was returned" : "nothing was returned";
        return !of.value || *of.value == datum(tree(step).value_kind, wanted) ? "" : "another value";
    }

    void close_pool() {
        for (const auto& [_, transaction] : transactions_) bristlecone_transaction_rollback(transaction);
        for (const auto& [_, snapshot] : snapshots_) bristlecone_snapshot_close(snapshot);
        for (const auto& [_, tree] : trees_) tree->close();
        if (!pool) return;
        pool->close();
        pool.reset();
    }

    void reopen(std::uint32_t flags) {
        trees_.clear();
        bristlecone::options how;
        how.create = flags == BRISTLECONE_CREATE;
        how.read_only = flags == BRISTLECONE_READ;
        how.max_bytes = how.create ? 64 << 20 : 0;
        if (has_journal_) how.domain = BRISTLECONE_DOMAIN_JOURNAL;
        how.recovery_threads = 1;
        pool.emplace(path_, how);
        pool_ = pool->c_handle();
    }

    std::string path_, design_;
    bool is_typed_, has_journal_;
    std::optional<bristlecone::pool> pool;
    bristlecone_pool* pool_ = nullptr;
    std::map<std::string, std::unique_ptr<c_tree>> trees_;
    std::map<std::string, bristlecone_transaction*> transactions_;
    std::map<std::string, bristlecone_snapshot*> snapshots_;
};

bool needs(const json& of, const std::string& feature) {
    if (!of.has("needs")) return false;
    const auto& all = of["needs"].elements;
    return std::any_of(all.begin(), all.end(), [&](const json& need) { return need.word == feature; });
}

int run_file(const std::filesystem::path& file, const std::string& pool) {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    const std::string content = text.str();
    int ran = 0;
    const json table = parser{content}.value();
    for (const json& of : table["cases"].elements) {
        for (const char* design : {"sstree", "nbtree", "cclbtree", "lodgetree", "wotree"}) {
            for (const bool is_typed : {false, true}) {
                // Objects of C++ that were closed cannot be used.
                if (is_typed && needs(of, "handles")) continue;
                std::filesystem::remove(pool);
                std::filesystem::remove_all(pool + ".journal");
                runner runner(pool, design, is_typed, needs(of, "changes"));
                for (const json& step : of["steps"].elements) {
                    const std::string problem = runner.run(step);
                    if (!problem.empty()) fail(file.filename().string() + ": " + of.name("name") + ", " + design + (is_typed ? ", C++: " : ", C: ") + step.name("do") + ": " + problem);
                }
                ++ran;
            }
        }
    }
    return ran;
}

}  // namespace

int main(int count, char** arguments) {
    CHECK(count == 2);
    const std::string pool = scratch("conformance");
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(arguments[1])) {
        if (entry.path().extension() == ".json") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    int ran = 0;
    for (const auto& file : files) ran += run_file(file, pool);
    std::filesystem::remove(pool);
    std::filesystem::remove_all(pool + ".journal");
    CHECK(ran >= 2 * 100 * 5);
    printf("conformance.cpp: %d cases hold in C and C++\n", ran);
    return 0;
}
