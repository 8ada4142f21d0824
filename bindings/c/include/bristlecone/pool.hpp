// Pools. Part of bristlecone.hpp.
#ifndef BRISTLECONE_POOL_HPP
#define BRISTLECONE_POOL_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "several.hpp"
#include "tree.hpp"

namespace bristlecone {

/// Options for opening a pool.
struct options {
    /// Creates the pool if it does not exist.
    bool create = false;
    /// Creates the pool, and fails if it exists.
    bool create_new = false;
    /// Opens the pool for reading only.
    bool read_only = false;
    /// Leaves SIGBUS to the program.
    bool leave_sigbus = false;
    /// Maximum size in bytes; 0 is the default.
    std::uint64_t max_bytes = 0;
    /// One of BRISTLECONE_DOMAIN_….
    std::uint32_t domain = BRISTLECONE_DOMAIN_DETECTED;
    /// Number of threads that recover a tree; 0: one per processor.
    std::size_t recovery_threads = 0;
    /// Opens the pool for reading while another process is writing to it: see BRISTLECONE_FOLLOW.
    bool follow = false;
    /// In a pool of the domain BRISTLECONE_DOMAIN_JOURNAL, when a write returns: one of BRISTLECONE_DURABILITY_….
    std::uint32_t durability = BRISTLECONE_DURABILITY_DEFAULT;
    /// With BRISTLECONE_DURABILITY_INTERVAL, the time in milliseconds.
    std::uint32_t interval_ms = 0;
    /// Folder of the journal; empty: the path of the pool, followed by ".journal".
    std::string journal;
    /// Most bytes of journal files that are kept only for a cursor, before a checkpoint drops it; 0: 1 GiB.
    std::uint64_t cursor_limit_bytes = 0;
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
                                    (how.leave_sigbus ? BRISTLECONE_LEAVE_SIGBUS : 0u) |
                                    (how.follow ? BRISTLECONE_FOLLOW : 0u);
        const char* journal = how.journal.empty() ? nullptr : how.journal.c_str();
        const bristlecone_open_options asked{sizeof(asked),  flags,   how.domain, how.max_bytes, how.recovery_threads, how.durability,
                                             how.interval_ms, journal, how.cursor_limit_bytes};
        bristlecone_pool* opened = nullptr;
        detail::check(bristlecone_pool_open(path.c_str(), &asked, &opened));
        handle_.reset(opened, bristlecone_pool_close);
    }

    /// A handle of the C library, for calls without a wrapper here.
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

    /// Creates a tree of a design, with options of that design. Values of the type `expiring<V>` live for `expire_after` if
    /// their write names no expiry; with zero they do not expire.
    template <class K, class V>
    bristlecone::tree<K, V> create_tree(const std::string& name, const std::string& design,
                                        std::initializer_list<bristlecone_option> given = {},
                                        std::chrono::milliseconds expire_after = {}) const {
        bristlecone_tree* opened = nullptr;
        const std::string keys = codec<K>::kind();
        const std::string values = codec<V>::kind();
        const bristlecone_tree_options asked{sizeof(asked), design.c_str(), given.begin(), given.size(),
                                            static_cast<std::uint64_t>(expire_after.count())};
        detail::check(
            bristlecone_tree_create(c_handle(), name.c_str(), keys.c_str(), values.c_str(), &asked, &opened));
        return {handle_, opened};
    }

    /// The trees, in directory order.
    std::vector<tree_entry> trees() const {
        std::vector<tree_entry> entries;
        const auto note = [](void* context, const char* name, const char* keys, const char* values,
                             const char* design) noexcept {
            static_cast<std::vector<tree_entry>*>(context)->push_back({name, keys, values, design});
        };
        detail::check(bristlecone_pool_trees(c_handle(), note, &entries));
        return entries;
    }

    /// Begins a batch.
    bristlecone::batch batch() const {
        bristlecone_batch* begun = nullptr;
        detail::check(bristlecone_batch_begin(c_handle(), &begun));
        return {handle_, begun};
    }

    /// Takes a snapshot that retains at most about `max_bytes` of DRAM; 0 is unlimited.
    bristlecone::snapshot snapshot(std::size_t max_bytes = 0) const {
        bristlecone_snapshot* taken = nullptr;
        detail::check(bristlecone_snapshot_open(c_handle(), max_bytes, &taken));
        return {handle_, taken};
    }

    /// Calls a function with a transaction and applies its changes atomically, if nothing that it read has changed
    /// meanwhile; otherwise calls it again, up to `attempts` times. Returns the function's result. After an exception
    /// of the function, or of the commit, nothing has changed.
    template <class F>
    auto transaction(F&& work, int attempts = 256) const -> decltype(work(std::declval<bristlecone::transaction&>())) {
        for (; attempts > 0; --attempts) {
            bristlecone_transaction* handle = nullptr;
            detail::check(bristlecone_transaction_begin(c_handle(), &handle));
            bristlecone::transaction begun(handle);
            if constexpr (std::is_void_v<decltype(work(begun))>) {
                work(begun);
                if (begun.commit()) return;
            } else {
                auto result = work(begun);
                if (begun.commit()) return result;
            }
        }
        throw error(BRISTLECONE_CONFLICT, "others changed what the transaction read, each time that it was tried");
    }

    /// Drops a tree, which must not be open.
    void drop_tree(const std::string& name) { detail::check(bristlecone_pool_drop_tree(c_handle(), name.c_str())); }

    /// Renames a tree, open or not.
    void rename_tree(const std::string& from, const std::string& to) {
        detail::check(bristlecone_pool_rename_tree(c_handle(), from.c_str(), to.c_str()));
    }

    /// Removes every item of a tree atomically. The tree must not be open.
    void clear_tree(const std::string& name) { detail::check(bristlecone_pool_clear_tree(c_handle(), name.c_str())); }

    /// Allocates space in advance.
    void prefault(std::uint64_t bytes) { detail::check(bristlecone_pool_prefault(c_handle(), bytes)); }

    /// Makes everything durable that has been acknowledged so far: see bristlecone_pool_sync.
    void sync() { detail::check(bristlecone_pool_sync(c_handle())); }

    /// Writes a checkpoint of the journal: see bristlecone_pool_checkpoint.
    void checkpoint() { detail::check(bristlecone_pool_checkpoint(c_handle())); }

    /// Writes a checkpoint, and removes all files of the journal that are not needed any more.
    void prune_journal() { detail::check(bristlecone_pool_prune_journal(c_handle())); }

    /// The state of the journal; nothing for a pool that does not write one.
    std::optional<bristlecone_journal_status> journal_status() const {
        bristlecone_journal_status known{};
        known.struct_bytes = sizeof(known);
        const int status = bristlecone_pool_get_journal_status(c_handle(), &known);
        if (status == BRISTLECONE_ABSENT) return std::nullopt;
        detail::check(status);
        return known;
    }

    /// Information about the pool.
    bristlecone_pool_info info() const {
        bristlecone_pool_info known{};
        known.struct_bytes = sizeof(known);
        detail::check(bristlecone_pool_get_info(c_handle(), &known));
        return known;
    }

    /// Damage to the pool's own structures; normally none.
    std::vector<issue> check() const {
        std::vector<issue> found;
        const auto note = [](void* context, const char* location, const char* what) noexcept {
            static_cast<std::vector<issue>*>(context)->push_back({location, what});
        };
        detail::unless(bristlecone_pool_check(c_handle(), note, &found), BRISTLECONE_FAILED);
        return found;
    }

    /// Closes the pool. Throws, and leaves it open, while trees or ranges of it are open, here or in copies of the
    /// pool.
    void close() {
        detail::check(bristlecone_pool_close(c_handle()));
        handle_.reset();
    }

private:
    std::shared_ptr<bristlecone_pool> handle_;
};

}  // namespace bristlecone

#endif
