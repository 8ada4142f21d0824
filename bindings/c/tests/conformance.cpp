// The table of all languages, for every design, by the calls of bristlecone.h and, for the types below, by
// bristlecone.hpp: see bindings/conformance/README.md.
#include "trees.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace {

// ---- the steps of a case

using opened = std::pair<int, std::unique_ptr<c_tree>>;
using opener = std::function<opened(const bristlecone::pool&, const std::string& name, const std::string& design, std::uint64_t expire_after)>;

template <class K, class V>
opener typed() {
    return [](const bristlecone::pool& pool, const std::string& name, const std::string& design, std::uint64_t expire_after) -> opened {
        try {
            auto tree = design.empty() ? pool.tree<K, V>(name) : pool.create_tree<K, V>(name, design, {}, std::chrono::milliseconds(expire_after));
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
        {{"u64", "Expiring<u64>"}, typed<std::uint64_t, bristlecone::expiring<std::uint64_t>>()},
        {{"str", "Expiring<u64>"}, typed<std::string, bristlecone::expiring<std::uint64_t>>()},
        {{"str", "Expiring<str>"}, typed<std::string, bristlecone::expiring<std::string>>()},
        {{"str", "Expiring<json>"}, typed<std::string, bristlecone::expiring<bristlecone::json>>()},
        {{"i8", "Expiring<()>"}, typed<std::int8_t, bristlecone::expiring<std::monostate>>()},
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
        static const std::vector<std::string> managing{"create", "open", "expiring", "close", "drop", "rename", "clear", "trees", "check", "reopen", "close_pool"};
        if (std::find(managing.begin(), managing.end(), what) != managing.end()) return manage(step, what, text);
        return on_tree(step, what, of, text);
    }

    int manage(const json& step, const std::string& what, std::string& text) {
        const std::string name = step.name("on");
        if (what == "create") return open(name, step.name("key_kind"), step.name("value_kind"), step.name("design", design_), number(step, "expire_after", 0));
        if (what == "open") return open(name, step.name("key_kind"), step.name("value_kind"), "", 0);
        if (what == "expiring") {
            std::unique_ptr<c_tree> live;
            const int status = tree(step).live(live);
            if (status == BRISTLECONE_OK) trees_[step.name("as")] = std::move(live);
            return status;
        }
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

    static std::uint64_t number(const json& step, const std::string& name, std::uint64_t otherwise) {
        return step.has(name) ? std::stoull(step[name].word) : otherwise;
    }

    int open(const std::string& name, const std::string& keys, const std::string& values, const std::string& design, std::uint64_t expire_after) {
        const auto known = typed_trees().find({keys, values});
        if (is_typed_ && known != typed_trees().end()) {
            auto [status, tree] = known->second(*pool, name, design, expire_after);
            if (status == BRISTLECONE_OK) trees_[name] = std::move(tree);
            return status;
        }
        bristlecone_tree_options options = BRISTLECONE_TREE_OPTIONS_INIT;
        options.design = design.c_str();
        options.expire_after_ms = expire_after;
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

    /// Makes a step that has to do with times, if it is one.
    std::optional<int> timed(const json& step, const std::string& what, std::string& text) {
        c_tree& in = tree(step);
        std::uint64_t ms = 0;
        if (what == "expire_after") {
            ms = in.expire_after();
            text = ms == 0 ? "" : std::to_string(ms);
            return BRISTLECONE_OK;
        }
        if (what == "remove_expired") {
            bristlecone::expired_removal pass;
            const int status = in.remove_expired(number(step, "budget", 0), &pass);
            text = std::to_string(pass.examined) + "," + std::to_string(pass.removed) + "," + (pass.is_complete ? "true" : "false");
            return status;
        }
        if (what != "expiry" && what != "set_expiry" && what != "expires_later") return std::nullopt;
        const bytes key = datum(in.key_kind, step["key"]);
        const bool is_set = what == "set_expiry";
        auto* by_c = is_of_another_kind(step) ? dynamic_cast<c_expiring*>(&in) : nullptr;
        const int status = by_c ? (is_set ? by_c->c_expiring::set_expiry(key, &ms) : by_c->c_expiring::expiry(key, &ms))
                                : (is_set ? in.set_expiry(key, &ms) : in.expiry(key, &ms));
        text = what == "expires_later" ? (ms > number(step, "than", 0) ? "true" : "false") : std::to_string(ms);
        return status;
    }

    int on_tree(const json& step, const std::string& what, result& of, std::string& text) {
        c_tree& in = tree(step);
        in.expires = number(step, "expires", BRISTLECONE_DEFAULT_EXPIRY);
        if (const auto status = timed(step, what, text)) return of.status = *status;
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
        if (what == "remove_expired") {
            std::string expected;
            for (const json& each : wanted.elements) expected += (expected.empty() ? "" : ",") + each.word;
            return text == expected ? "" : "returned " + text;
        }
        static const std::vector<std::string> times{"expiry", "set_expiry", "expires_later", "expire_after"};
        const bool is_time = std::find(times.begin(), times.end(), what) != times.end();
        if (is_time || what == "len" || what == "contains" || what == "remove_range" || what == "remove_prefix") return text == wanted.word ? "" : "returned " + text;
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
