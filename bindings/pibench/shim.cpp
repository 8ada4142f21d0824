// PiBench over Bristlecone: a shared object that PiBench loads, with the tree that it measures.
//
//     make -C bindings/pibench PIBENCH=/path/to/pibench/include
//     BRISTLECONE_DESIGN=nbtree ./PiBench bindings/pibench/build/release/libbristlecone_pibench.so --pool_path=/dev/shm/p --pool_size=…
//
// README.md has the environment variables. What PiBench's tree_api says holds here: an insert fails on a key that is there,
// an update and a removal on one that is not, and a scan leaves ascending pairs that stay as they are until the thread's
// next scan. Keys order as their bytes do, as PiBench generates them.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

#include "bristlecone.h"
#include "tree_api.hpp"

namespace {

const char* setting(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != 0 ? value : nullptr;
}

void say(const char* what, const char* why) { std::fprintf(stderr, "bristlecone: %s: %s\n", what, why); }

/// How keys and values of one size are kept: those of up to 8 bytes as words, unless all are to be bytes.
class layout {
public:
    layout(std::size_t bytes, bool word, bool ordered) : bytes_(bytes), word_(word), ordered_(ordered) {}

    bool is_word() const { return word_; }
    const char* kind() const { return word_ ? "u64" : "bytes"; }
    std::size_t bytes() const { return bytes_; }

    /// The word that stands for bytes: keys order as their bytes do, or as numbers of this machine.
    std::uint64_t word(const char* from) const {
        std::uint64_t word = 0;
        std::memcpy(&word, from, bytes_);
        return ordered_ ? swapped(word) : word;
    }
    void unword(std::uint64_t word, char* to) const {
        if (ordered_) word = swapped(word);
        std::memcpy(to, &word, bytes_);
    }

private:
    static std::uint64_t swapped(std::uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        return __builtin_bswap64(word);
#else
        return word;
#endif
    }

    std::size_t bytes_;
    bool word_;
    bool ordered_;
};

class bristlecone_tree_api final : public tree_api {
public:
    /// The tree, or null if it cannot be had: why is on standard error.
    static bristlecone_tree_api* open(const tree_options_t& asked) {
        const char* kinds = setting("BRISTLECONE_KINDS");
        const char* order = setting("BRISTLECONE_KEY_ORDER");
        const bool bytes = kinds != nullptr && std::strcmp(kinds, "bytes") == 0;
        const bool native = order != nullptr && std::strcmp(order, "native") == 0;
        if (kinds != nullptr && !bytes && std::strcmp(kinds, "words") != 0) {
            return refuse("BRISTLECONE_KINDS", "\"words\" or \"bytes\"");
        }
        if (order != nullptr && !native && std::strcmp(order, "bytes") != 0) {
            return refuse("BRISTLECONE_KEY_ORDER", "\"bytes\" or \"native\"");
        }
        if (bristlecone_abi_version() != BRISTLECONE_ABI_VERSION) {
            return refuse("libbristlecone.so", "it has another interface than this shim was built for");
        }
        const layout keys(asked.key_size, !bytes && asked.key_size <= 8, !native);
        const layout values(asked.value_size, !bytes && asked.value_size <= 8, false);
        auto* made = new bristlecone_tree_api(keys, values);
        if (made->open_pool(asked) && made->open_tree()) return made;
        delete made;
        return nullptr;
    }

    bristlecone_tree_api(const bristlecone_tree_api&) = delete;
    bristlecone_tree_api& operator=(const bristlecone_tree_api&) = delete;

    ~bristlecone_tree_api() override {
        if (failures_ != 0) {
            std::fprintf(stderr, "bristlecone: %llu operations failed: the figures of this run are not to be used\n",
                         static_cast<unsigned long long>(failures_));
        }
        if (tree_ != nullptr) bristlecone_tree_close(tree_);
        if (pool_ != nullptr && bristlecone_pool_close(pool_) != BRISTLECONE_OK) say("closing", bristlecone_errmsg());
        if (!temporary_.empty()) unlink(temporary_.c_str());
    }

    // Not every version of PiBench has this one.
    bool bulk_load(const char* data, std::size_t records, std::size_t key_bytes, std::size_t value_bytes) {
        for (std::size_t i = 0; i < records; ++i, data += key_bytes + value_bytes) {
            if (!insert(data, key_bytes, data + key_bytes, value_bytes)) return false;
        }
        return true;
    }

    bool find(const char* key, std::size_t key_bytes, char* value_out) override {
        if (words()) {
            if (!fits(keys_, key_bytes)) return false;
            std::uint64_t word = 0;
            if (!done(bristlecone_get_u64(tree_, keys_.word(key), &word))) return false;
            values_.unword(word, value_out);
            return true;
        }
        char buffer[8];
        const packed packed_key(keys_, key, key_bytes, buffer);
        if (!packed_key.fits) return wrong_size();
        if (values_.is_word()) {
            std::uint64_t word = 0;
            if (!done(bristlecone_get(tree_, packed_key.data, packed_key.bytes, &word, 8, nullptr))) return false;
            values_.unword(word, value_out);
            return true;
        }
        // PiBench has room for a value of the size that it asked for.
        return done(bristlecone_get(tree_, packed_key.data, packed_key.bytes, value_out, values_.bytes(), nullptr));
    }

    bool insert(const char* key, std::size_t key_bytes, const char* value, std::size_t value_bytes) override {
        if (words()) {
            if (!fits(keys_, key_bytes) || !fits(values_, value_bytes)) return false;
            return done(bristlecone_insert_u64(tree_, keys_.word(key), values_.word(value), nullptr));
        }
        return with(key, key_bytes, value, value_bytes, [this](const packed& k, const packed& v) {
            return bristlecone_insert(tree_, k.data, k.bytes, v.data, v.bytes, nullptr, nullptr);
        });
    }

    bool update(const char* key, std::size_t key_bytes, const char* value, std::size_t value_bytes) override {
        if (words()) {
            if (!fits(keys_, key_bytes) || !fits(values_, value_bytes)) return false;
            return done(bristlecone_update_u64(tree_, keys_.word(key), values_.word(value), nullptr));
        }
        return with(key, key_bytes, value, value_bytes, [this](const packed& k, const packed& v) {
            return bristlecone_update(tree_, k.data, k.bytes, v.data, v.bytes, nullptr, nullptr);
        });
    }

    bool remove(const char* key, std::size_t key_bytes) override {
        if (words()) return fits(keys_, key_bytes) && done(bristlecone_remove_u64(tree_, keys_.word(key), nullptr));
        char buffer[8];
        const packed packed_key(keys_, key, key_bytes, buffer);
        if (!packed_key.fits) return wrong_size();
        return done(bristlecone_remove(tree_, packed_key.data, packed_key.bytes, nullptr, nullptr));
    }

    int scan(const char* key, std::size_t key_bytes, int count, char*& values_out) override {
        static thread_local std::vector<char> pairs;
        // Never null, also where there is nothing.
        pairs.resize(static_cast<std::size_t>(count > 0 ? count : 0) * (keys_.bytes() + values_.bytes()) + 1);
        values_out = pairs.data();
        char buffer[8];
        const packed from(keys_, key, key_bytes, buffer);
        if (!from.fits) return wrong_size();
        bristlecone_range range = BRISTLECONE_RANGE_INIT;
        range.from = from.data;
        range.from_bytes = from.bytes;
        bristlecone_iter* iter = nullptr;
        if (!done(bristlecone_iter_open(tree_, &range, &iter))) return 0;
        const int scanned = words() ? scan_words(iter, count, values_out) : scan_bytes(iter, count, values_out);
        bristlecone_iter_close(iter);
        return scanned;
    }

private:
    /// A key or value as the library takes it.
    struct packed {
        const void* data;
        std::size_t bytes;
        bool fits = true;

        packed(const layout& kept, const char* from, std::size_t size, char (&buffer)[8]) : data(from), bytes(size) {
            if (!kept.is_word()) {
                // An empty bound is not a null pointer.
                if (size == 0) data = "";
                return;
            }
            fits = size == kept.bytes();
            if (!fits) return;
            const std::uint64_t word = kept.word(from);
            std::memcpy(buffer, &word, sizeof(word));
            data = buffer;
            bytes = sizeof(word);
        }
        packed(const packed&) = delete;
        packed& operator=(const packed&) = delete;
    };

    bristlecone_tree_api(layout keys, layout values) : keys_(keys), values_(values) {}

    static bristlecone_tree_api* refuse(const char* what, const char* why) {
        say(what, why);
        return nullptr;
    }

    bool words() const { return keys_.is_word() && values_.is_word(); }

    bool fits(const layout& kept, std::size_t bytes) { return bytes == kept.bytes() || wrong_size(); }

    bool wrong_size() {
        note("a key or value of another size than the tree was created for: BRISTLECONE_KINDS=bytes takes them");
        return false;
    }

    /// Whether an operation was done. What is no answer to it is noted: PiBench itself only counts it as not done.
    bool done(int status) {
        if (status == BRISTLECONE_OK) return true;
        if (status != BRISTLECONE_ABSENT && status != BRISTLECONE_PRESENT) note(bristlecone_errmsg());
        return false;
    }

    void note(const char* why) {
        if (failures_.fetch_add(1) == 0) say("an operation failed", why);
    }

    template <class F>
    bool with(const char* key, std::size_t key_bytes, const char* value, std::size_t value_bytes, F&& use) {
        char buffers[2][8];
        const packed k(keys_, key, key_bytes, buffers[0]);
        const packed v(values_, value, value_bytes, buffers[1]);
        return k.fits && v.fits ? done(use(k, v)) : wrong_size();
    }

    int scan_words(bristlecone_iter* iter, int count, char* to) {
        constexpr int BATCH = 128;
        std::uint64_t keys[BATCH];
        std::uint64_t values[BATCH];
        int scanned = 0;
        while (scanned < count) {
            std::size_t got = 0;
            const int asked = count - scanned < BATCH ? count - scanned : BATCH;
            if (!done(bristlecone_iter_next_u64(iter, keys, values, static_cast<std::size_t>(asked), &got))) break;
            for (std::size_t i = 0; i < got; ++i) {
                keys_.unword(keys[i], to);
                values_.unword(values[i], to + keys_.bytes());
                to += keys_.bytes() + values_.bytes();
            }
            scanned += static_cast<int>(got);
            if (got < static_cast<std::size_t>(asked)) break;
        }
        return scanned;
    }

    int scan_bytes(bristlecone_iter* iter, int count, char* to) {
        int scanned = 0;
        while (scanned < count) {
            const void* found[2];
            std::size_t sizes[2];
            if (!done(bristlecone_iter_next(iter, &found[0], &sizes[0], &found[1], &sizes[1]))) break;
            const layout* kept[2] = {&keys_, &values_};
            for (int part = 0; part < 2; ++part) {
                const std::size_t bytes = kept[part]->bytes();
                if (kept[part]->is_word()) {
                    std::uint64_t word = 0;
                    std::memcpy(&word, found[part], sizeof(word));
                    kept[part]->unword(word, to);
                } else {
                    // Pairs are contiguous, of the sizes that PiBench asked for.
                    const std::size_t held = sizes[part] < bytes ? sizes[part] : bytes;
                    std::memcpy(to, found[part], held);
                    std::memset(to + held, 0, bytes - held);
                }
                to += bytes;
            }
            ++scanned;
        }
        return scanned;
    }

    bool open_pool(const tree_options_t& asked) {
        const char* path = setting("BRISTLECONE_POOL");
        std::string chosen = path != nullptr ? path : asked.pool_path;
        if (chosen.empty()) {
            chosen = temporary_ = "/dev/shm/bristlecone-pibench-" + std::to_string(getpid()) + ".pool";
        }
        bristlecone_open_options how = BRISTLECONE_OPEN_OPTIONS_INIT;
        how.flags = BRISTLECONE_CREATE;
        how.max_bytes = asked.pool_size != 0 ? asked.pool_size : std::uint64_t{64} << 30;
        if (!number("BRISTLECONE_POOL_BYTES", how.max_bytes)) return false;
        if (!domain(how.domain)) return false;
        if (bristlecone_pool_open(chosen.c_str(), &how, &pool_) == BRISTLECONE_OK) return true;
        say(chosen.c_str(), bristlecone_errmsg());
        temporary_.clear();
        return false;
    }

    bool open_tree() {
        const char* name = setting("BRISTLECONE_TREE");
        if (name == nullptr) name = "pibench";
        if (bristlecone_tree_open(pool_, name, &tree_) == BRISTLECONE_OK) return is_right(name);
        std::vector<bristlecone_option> options;
        std::string texts;
        if (!design_options(texts, options)) return false;
        bristlecone_tree_options how = BRISTLECONE_TREE_OPTIONS_INIT;
        how.design = setting("BRISTLECONE_DESIGN");
        how.options = options.data();
        how.option_count = options.size();
        if (bristlecone_tree_create(pool_, name, keys_.kind(), values_.kind(), &how, &tree_) == BRISTLECONE_OK) return true;
        say(name, bristlecone_errmsg());
        return false;
    }

    /// A tree that is there already, as for `--skip_load`, must be the one that is asked for.
    bool is_right(const char* name) {
        bristlecone_tree_info info = BRISTLECONE_TREE_INFO_INIT;
        const char* design = setting("BRISTLECONE_DESIGN");
        if (!done(bristlecone_tree_get_info(tree_, &info))) return false;
        if (std::strcmp(info.key_kind, keys_.kind()) != 0 || std::strcmp(info.value_kind, values_.kind()) != 0) {
            say(name, "the tree in the pool has other keys or values");
            return false;
        }
        if (design != nullptr && std::strcmp(design, info.design) != 0) {
            say(name, "the tree in the pool is of another design: remove the pool, or leave BRISTLECONE_DESIGN out");
            return false;
        }
        return true;
    }

    /// Reads "block_bytes=512,other=1". The names stay in `texts`.
    static bool design_options(std::string& texts, std::vector<bristlecone_option>& options) {
        const char* given = setting("BRISTLECONE_OPTIONS");
        if (given == nullptr) return true;
        texts = given;
        for (std::size_t at = 0; at < texts.size();) {
            const std::size_t end = std::min(texts.find(',', at), texts.size());
            const std::size_t equals = texts.find('=', at);
            std::uint64_t value = 0;
            if (equals >= end || !parse(texts.substr(equals + 1, end - equals - 1), value)) {
                say("BRISTLECONE_OPTIONS", "NAME=NUMBER, and commas between them");
                return false;
            }
            texts[equals] = 0;
            options.push_back({texts.data() + at, value});
            at = end + 1;
        }
        return true;
    }

    static bool domain(std::uint32_t& chosen) {
        const char* name = setting("BRISTLECONE_DOMAIN");
        if (name == nullptr) return true;
        const std::pair<const char*, std::uint32_t> names[] = {{"process", BRISTLECONE_DOMAIN_PROCESS},
                                                               {"adr", BRISTLECONE_DOMAIN_ADR},
                                                               {"eadr", BRISTLECONE_DOMAIN_EADR},
                                                               {"msync", BRISTLECONE_DOMAIN_MSYNC}};
        for (const auto& [known, number] : names) {
            if (std::strcmp(name, known) == 0) {
                chosen = number;
                return true;
            }
        }
        say("BRISTLECONE_DOMAIN", "process, adr, eadr or msync");
        return false;
    }

    static bool number(const char* name, std::uint64_t& value) {
        const char* given = setting(name);
        if (given == nullptr || parse(given, value)) return true;
        say(name, "a number");
        return false;
    }

    static bool parse(const std::string& text, std::uint64_t& value) {
        if (text.empty() || text.size() > 19 || text.find_first_not_of("0123456789") != std::string::npos) return false;
        value = std::strtoull(text.c_str(), nullptr, 10);
        return true;
    }

    layout keys_;
    layout values_;
    bristlecone_pool* pool_ = nullptr;
    bristlecone_tree* tree_ = nullptr;
    /// A pool that goes with the run.
    std::string temporary_;
    std::atomic<std::uint64_t> failures_{0};
};

}  // namespace

extern "C" __attribute__((visibility("default"))) tree_api* create_tree(const tree_options_t& options) {
    return bristlecone_tree_api::open(options);
}
