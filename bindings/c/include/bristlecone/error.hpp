// Errors as exceptions, and issues of checks. Part of bristlecone.hpp.
#ifndef BRISTLECONE_ERROR_HPP
#define BRISTLECONE_ERROR_HPP

#include <stdexcept>
#include <string>

#include "../bristlecone.h"

namespace bristlecone {

/// The failure of a call.
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

/// Location and description of an issue.
struct issue {
    std::string location;
    std::string what;
};

namespace detail {

inline void check(int status) {
    if (status != BRISTLECONE_OK) throw error(status);
}

/// True on success, false for one status that is not an error.
inline bool unless(int status, int other) {
    if (status == other) return false;
    check(status);
    return true;
}

[[noreturn]] inline void unfit(const char* what) {
    throw error(BRISTLECONE_CORRUPTED, std::string("the library gave bytes that are no ") + what);
}

}  // namespace detail

}  // namespace bristlecone

#endif
