// A wrapper for PiBench over std::map, under a lock. LOSES omits one key in a hundred; OLD has the header without
// bulk_load.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct tree_options_t {
    size_t key_size = 8;
    size_t value_size = 8;
    std::string pool_path = "";
    size_t pool_size = 0;
    size_t num_threads = 1;
};

class tree_api {
public:
    virtual ~tree_api() {}
#ifndef OLD
    virtual bool bulk_load(const char *, size_t, size_t, size_t) { return false; }
#endif
    virtual bool find(const char *key, size_t key_size, char *value) = 0;
    virtual bool insert(const char *key, size_t key_size, const char *value, size_t value_size) = 0;
    virtual bool update(const char *key, size_t key_size, const char *value, size_t value_size) = 0;
    virtual bool remove(const char *key, size_t key_size) = 0;
    virtual int scan(const char *key, size_t key_size, int length, char *&values) = 0;
};

class wrapper : public tree_api {
    std::map<uint64_t, uint64_t> map;
    std::mutex lock;

    static uint64_t word(const char *bytes) {
        uint64_t word;
        std::memcpy(&word, bytes, 8);
        return word;
    }

public:
    bool find(const char *key, size_t, char *value) override {
        std::lock_guard<std::mutex> held(lock);
        auto found = map.find(word(key));
        if (found == map.end()) return false;
        std::memcpy(value, &found->second, 8);
        return true;
    }
    bool insert(const char *key, size_t, const char *value, size_t) override {
        std::lock_guard<std::mutex> held(lock);
#ifdef LOSES
        if (word(key) % 100 == 0) return true;
#endif
        return map.emplace(word(key), word(value)).second;
    }
    bool update(const char *key, size_t, const char *value, size_t) override {
        std::lock_guard<std::mutex> held(lock);
        auto found = map.find(word(key));
        if (found == map.end()) return false;
        found->second = word(value);
        return true;
    }
    bool remove(const char *key, size_t) override {
        std::lock_guard<std::mutex> held(lock);
        return map.erase(word(key)) == 1;
    }
    int scan(const char *key, size_t, int length, char *&values) override {
        static thread_local std::vector<std::pair<uint64_t, uint64_t>> results;
        std::lock_guard<std::mutex> held(lock);
        results.clear();
        for (auto at = map.lower_bound(word(key)); at != map.end() && (int)results.size() < length; ++at)
            results.push_back(*at);
        values = (char *)results.data();
        return (int)results.size();
    }
};

extern "C" tree_api *create_tree(const tree_options_t &options) {
    bool expected = options.key_size == 8 && options.value_size == 8 && options.pool_size > 0 &&
                    options.num_threads == 2 && options.pool_path.find("wrapped/pool") != std::string::npos;
    return expected ? new wrapper() : nullptr;
}
