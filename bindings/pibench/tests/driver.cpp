// Loads the shim as PiBench does, and holds it to what PiBench's interface says.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include "tree_api.hpp"

#define CHECK(...)                                                                           \
    do {                                                                                     \
        if (!(__VA_ARGS__)) {                                                                \
            std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #__VA_ARGS__); \
            std::exit(1);                                                                    \
        }                                                                                    \
    } while (0)

namespace {

using create_fn = tree_api* (*)(const tree_options_t&);

/// A library as PiBench holds it.
class library {
public:
    explicit library(const char* path) : handle_(dlopen(path, RTLD_NOW)) {
        if (handle_ == nullptr) std::fprintf(stderr, "%s\n", dlerror());
        CHECK(handle_ != nullptr);
        create_ = reinterpret_cast<create_fn>(dlsym(handle_, "create_tree"));
        CHECK(create_ != nullptr);
    }
    ~library() { CHECK(dlclose(handle_) == 0); }
    library(const library&) = delete;
    library& operator=(const library&) = delete;

    tree_api* create(const tree_options_t& options) const { return create_(options); }

private:
    void* handle_;
    create_fn create_;
};

/// A key or value of a size, which orders as its number does.
std::string of(std::uint64_t number, std::size_t bytes) {
    std::string text(bytes, '\0');
    for (std::size_t i = 0; i < bytes && i < 8; ++i) text[bytes - 1 - i] = static_cast<char>(number >> (8 * i));
    return text;
}

std::uint64_t scrambled(std::uint64_t number) { return (number * 0x9E3779B97F4A7C15u) >> 40; }

struct subject {
    tree_api* tree;
    std::size_t key_bytes, value_bytes;

    std::string key(std::uint64_t number) const { return of(number, key_bytes); }
    std::string value(std::uint64_t number) const { return of(number, value_bytes); }
    bool insert(std::uint64_t k, std::uint64_t v) const {
        return tree->insert(key(k).data(), key_bytes, value(v).data(), value_bytes);
    }
    bool update(std::uint64_t k, std::uint64_t v) const {
        return tree->update(key(k).data(), key_bytes, value(v).data(), value_bytes);
    }
    bool remove(std::uint64_t k) const { return tree->remove(key(k).data(), key_bytes); }
    bool has(std::uint64_t k, std::uint64_t v) const {
        // PiBench's own buffer is larger; what is behind the value must stay.
        std::vector<char> out(value_bytes + 16, '#');
        if (!tree->find(key(k).data(), key_bytes, out.data())) return false;
        CHECK(std::string(out.data() + value_bytes, 16) == std::string(16, '#'));
        return std::string(out.data(), value_bytes) == value(v);
    }
    bool lacks(std::uint64_t k) const {
        std::vector<char> out(value_bytes + 1, '#');
        return !tree->find(key(k).data(), key_bytes, out.data()) && out[0] == '#';
    }
    /// The pairs of a scan.
    std::vector<std::pair<std::string, std::string>> scan(std::uint64_t from, int count) const {
        char* pairs = nullptr;
        const int scanned = tree->scan(key(from).data(), key_bytes, count, pairs);
        CHECK(scanned >= 0 && scanned <= count && pairs != nullptr);
        std::vector<std::pair<std::string, std::string>> found;
        for (int i = 0; i < scanned; ++i, pairs += key_bytes + value_bytes) {
            found.emplace_back(std::string(pairs, key_bytes), std::string(pairs + key_bytes, value_bytes));
        }
        return found;
    }
};

void semantics(const library& shim, std::size_t key_bytes, std::size_t value_bytes, const std::string& pool) {
    constexpr std::uint64_t ITEMS = 3000;
    tree_options_t options;
    options.key_size = key_bytes;
    options.value_size = value_bytes;
    options.pool_path = pool;
    options.pool_size = 256 << 20;
    const std::uint64_t mask = key_bytes >= 8 ? UINT64_MAX : (std::uint64_t{1} << (8 * key_bytes)) - 1;
    subject subject{shim.create(options), key_bytes, value_bytes};
    CHECK(subject.tree != nullptr);
    std::map<std::uint64_t, std::uint64_t> model;
    for (std::uint64_t i = 0; i < ITEMS; ++i) {
        const std::uint64_t key = scrambled(i) & mask;
        CHECK(subject.insert(key, i & 0xff) == model.emplace(key, i & 0xff).second);
    }
    for (std::uint64_t i = 0; i < ITEMS; ++i) {
        const std::uint64_t key = scrambled(3 * i + 1) & mask;
        const bool there = model.count(key) != 0;
        if (there) model[key] = 77;
        CHECK(subject.update(key, 77) == there);
        const std::uint64_t gone = scrambled(5 * i) & mask;
        CHECK(subject.remove(gone) == (model.erase(gone) != 0));
        CHECK(subject.lacks(gone));
    }
    for (const auto& [key, value] : model) CHECK(subject.has(key, value));
    for (std::uint64_t from : {std::uint64_t{0}, scrambled(7) & mask, mask}) {
        for (int count : {0, 1, 100, 1 << 16}) {
            auto expected = model.lower_bound(from);
            const auto found = subject.scan(from, count);
            for (const auto& [key, value] : found) {
                CHECK(expected != model.end());
                CHECK(key == subject.key(expected->first) && value == subject.value(expected->second));
                ++expected;
            }
            CHECK(static_cast<int>(found.size()) == count || expected == model.end());
        }
    }
    delete subject.tree;

    // As with --skip_load: the pool is still there, and the tree in it.
    subject.tree = shim.create(options);
    CHECK(subject.tree != nullptr);
    for (const auto& [key, value] : model) CHECK(subject.has(key, value));
    delete subject.tree;
    // A tree of other values is refused.
    options.value_size = value_bytes <= 8 ? 100 : 8;
    if (std::getenv("BRISTLECONE_KINDS") == nullptr) CHECK(shim.create(options) == nullptr);
    unlink(pool.c_str());
}

/// What a thread scanned stays as it is while others scan and write.
void threads(const library& shim) {
    constexpr std::uint64_t THREADS = 4, ITEMS = 5000;
    tree_options_t options;
    options.num_threads = THREADS;
    const subject subject{shim.create(options), 8, 8};
    CHECK(subject.tree != nullptr);
    std::vector<std::thread> workers;
    for (std::uint64_t number = 0; number < THREADS; ++number) {
        workers.emplace_back([&, number] {
            for (std::uint64_t i = 0; i < ITEMS; ++i) CHECK(subject.insert(i * THREADS + number, i));
            char *own = nullptr, *again = nullptr;
            const std::string from = subject.key(number);
            CHECK(subject.tree->scan(from.data(), 8, 50, own) == 50);
            const std::string before(own, 50 * 16);
            std::thread([&] { CHECK(subject.tree->scan(from.data(), 8, 100, again) > 0); }).join();
            for (std::uint64_t i = 0; i < 100; ++i) CHECK(subject.update(i * THREADS + number, i + 1));
            CHECK(std::string(own, 50 * 16) == before);
        });
    }
    for (auto& worker : workers) worker.join();
    for (std::uint64_t i = 0; i < ITEMS * THREADS; ++i) CHECK(subject.has(i, i / THREADS + (i / THREADS < 100)));
    CHECK(subject.scan(0, 1 << 20).size() == ITEMS * THREADS);
    delete subject.tree;
}

void settings(const library& shim, const std::string& pool) {
    tree_options_t options;
    options.pool_path = pool;
    options.pool_size = 64 << 20;
    const auto refused = [&](const char* name, const char* value) {
        CHECK(setenv(name, value, 1) == 0);
        tree_api* made = shim.create(options);
        CHECK(unsetenv(name) == 0);
        delete made;
        return made == nullptr;
    };
    CHECK(refused("BRISTLECONE_DESIGN", "bonsai"));
    CHECK(refused("BRISTLECONE_OPTIONS", "block_bytes"));
    CHECK(refused("BRISTLECONE_OPTIONS", "leaves=1"));
    CHECK(refused("BRISTLECONE_KINDS", "trees"));
    CHECK(refused("BRISTLECONE_KEY_ORDER", "odd"));
    CHECK(refused("BRISTLECONE_POOL_BYTES", "much"));
    CHECK(refused("BRISTLECONE_DOMAIN", "none"));
    CHECK(refused("BRISTLECONE_POOL", "/none/at/all"));
    CHECK(!refused("BRISTLECONE_OPTIONS", "block_bytes=512"));
    CHECK(refused("BRISTLECONE_DESIGN", "wotree"));
    CHECK(!refused("BRISTLECONE_DESIGN", "nbtree"));
    CHECK(!refused("BRISTLECONE_DOMAIN", "process"));
    unlink(pool.c_str());
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(argc == 2);
    const std::string pool = "/dev/shm/bristlecone-pibench-test-" + std::to_string(getpid()) + ".pool";
    {
        const library shim(argv[1]);
        const std::size_t sizes[][2] = {{8, 8}, {4, 4}, {2, 1}, {8, 100}, {20, 8}, {16, 64}};
        for (const auto& size : sizes) semantics(shim, size[0], size[1], pool);
        for (const char* design : {"sstree", "nbtree", "cclbtree", "lodgetree", "wotree"}) {
            CHECK(setenv("BRISTLECONE_DESIGN", design, 1) == 0);
            semantics(shim, 8, 8, pool);
            semantics(shim, 20, 20, pool);
        }
        CHECK(unsetenv("BRISTLECONE_DESIGN") == 0 && setenv("BRISTLECONE_KINDS", "bytes", 1) == 0);
        semantics(shim, 8, 8, pool);
        CHECK(unsetenv("BRISTLECONE_KINDS") == 0);
        threads(shim);
        settings(shim, pool);
    }
    // The library was closed, and what it leaves behind does no harm.
    {
        const library again(argv[1]);
        semantics(again, 8, 8, pool);
    }
    std::puts("driver.cpp: all is well");
    return 0;
}
