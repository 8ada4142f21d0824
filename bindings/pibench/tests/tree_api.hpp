// As much of PiBench's interface as the shim's test needs: what PiBench's header of this name declares, in its order,
// since a virtual function is called by its place. The shim is built with PiBench's own.
#ifndef TREE_API_HPP
#define TREE_API_HPP

#include <cstddef>
#include <string>

struct tree_options_t {
    size_t key_size = 8;
    size_t value_size = 8;
    std::string pool_path = "";
    size_t pool_size = 0;
    size_t num_threads = 1;
};

class tree_api;
extern "C" tree_api* create_tree(const tree_options_t& options);

class tree_api {
public:
    virtual ~tree_api() = default;
#ifdef WITH_BULK_LOAD
    virtual bool bulk_load(const char*, size_t, size_t, size_t) { return false; }
#endif
    virtual bool find(const char* key, size_t key_size, char* value) = 0;
    virtual bool insert(const char* key, size_t key_size, const char* value, size_t value_size) = 0;
    virtual bool update(const char* key, size_t key_size, const char* value, size_t value_size) = 0;
    virtual bool remove(const char* key, size_t key_size) = 0;
    virtual int scan(const char* key, size_t key_size, int count, char*& values) = 0;
};

#endif
