// Types of keys and values, and their bytes. Part of bristlecone.hpp.
#ifndef BRISTLECONE_CODEC_HPP
#define BRISTLECONE_CODEC_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "error.hpp"

namespace bristlecone {

/// Byte strings, as a type of keys or values: std::string owns them, std::string_view refers to them.
struct bytes {};

/// JSON, as a type of values: validated when written.
struct json {};

/// Maps a type to a key or a value: its kind, the type that operations take (`view`), the type that they return
/// (`owned`), and its bytes. Specialize it to represent your own types by one of these.
template <class T, class = void>
struct codec;

namespace detail {

inline void take(const char*& from, const char* end, void* to, std::size_t bytes) {
    if (static_cast<std::size_t>(end - from) < bytes) unfit("such key or value");
    if (bytes != 0) std::memcpy(to, from, bytes);
    from += bytes;
}

/// A type whose bytes are those of the object.
template <class T>
struct plain {
    using view = T;
    using owned = T;

    template <class F>
    static void with(const T& value, F&& use) {
        use(static_cast<const void*>(&value), sizeof(T));
    }
    static T read(const void* data, std::size_t size) {
        T value;
        if (size != sizeof(T)) unfit("number");
        std::memcpy(&value, data, sizeof(T));
        return value;
    }
    static T show(const void* data, std::size_t size) { return read(data, size); }
    static void pack(std::string& to, const T& value) {
        to.append(reinterpret_cast<const char*>(&value), sizeof(T));
    }
    static T unpack(const char*& from, const char* end) {
        T value;
        take(from, end, &value, sizeof(T));
        return value;
    }
};

/// A type that is owned by std::string.
struct text {
    using view = std::string_view;
    using owned = std::string;

    template <class F>
    static void with(std::string_view value, F&& use) {
        // An empty value must not be a null pointer, which means absence.
        use(static_cast<const void*>(value.empty() ? "" : value.data()), value.size());
    }
    static std::string read(const void* data, std::size_t size) { return std::string(show(data, size)); }
    static std::string_view show(const void* data, std::size_t size) {
        return {static_cast<const char*>(data), size};
    }
    static void pack(std::string& to, std::string_view value) {
        const std::uint64_t size = value.size();
        to.append(reinterpret_cast<const char*>(&size), sizeof(size));
        to.append(value);
    }
    static std::string unpack(const char*& from, const char* end) {
        std::uint64_t size = 0;
        take(from, end, &size, sizeof(size));
        if (static_cast<std::uint64_t>(end - from) < size) unfit("string");
        std::string value(from, static_cast<std::size_t>(size));
        from += size;
        return value;
    }
};

/// A type that is packed: its elements are adjacent.
template <class T, class Codec>
struct packed {
    using view = const T&;
    using owned = T;

    template <class F>
    static void with(const T& value, F&& use) {
        std::string bytes;
        Codec::pack(bytes, value);
        use(static_cast<const void*>(bytes.empty() ? "" : bytes.data()), bytes.size());
    }
    static T read(const void* data, std::size_t size) {
        const char* from = static_cast<const char*>(data);
        const char* end = from + size;
        T value = Codec::unpack(from, end);
        if (from != end) unfit("such key or value");
        return value;
    }
    static T show(const void* data, std::size_t size) { return read(data, size); }
};

/// Elements of a tuple or a pair.
template <class T, class... Elements>
struct elements : packed<T, elements<T, Elements...>> {
    static std::string kind() {
        std::string names;
        ((names += (names.empty() ? "" : ", ") + codec<Elements>::kind()), ...);
        return "(" + names + (sizeof...(Elements) == 1 ? ",)" : ")");
    }
    static void pack(std::string& to, const T& value) {
        std::apply([&](const auto&... element) { (codec<Elements>::pack(to, element), ...); }, value);
    }
    static T unpack(const char*& from, const char* end) {
        // Initializer lists are evaluated in order.
        return T{codec<Elements>::unpack(from, end)...};
    }
};

template <class T>
constexpr bool is_number = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
                           !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

/// Keys or values accepted by the calls ending in `_u64`.
template <class T>
constexpr bool is_word = is_number<T> && std::is_unsigned_v<T> && sizeof(T) == 8;

}  // namespace detail

template <class T>
struct codec<T, std::enable_if_t<detail::is_number<T>>> : detail::plain<T> {
    static std::string kind() { return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)); }
};

template <>
struct codec<float> : detail::plain<float> {
    static std::string kind() { return "f32"; }
};

template <>
struct codec<double> : detail::plain<double> {
    static std::string kind() { return "f64"; }
};

template <>
struct codec<char32_t> : detail::plain<char32_t> {
    static std::string kind() { return "char"; }
};

template <>
struct codec<bool> : detail::plain<bool> {
    static std::string kind() { return "bool"; }
};

template <>
struct codec<std::string> : detail::text {
    static std::string kind() { return "str"; }
};

template <>
struct codec<std::string_view> : codec<std::string> {};

template <>
struct codec<bytes> : detail::text {
    static std::string kind() { return "bytes"; }
};

template <>
struct codec<json> : detail::text {
    static std::string kind() { return "json"; }
};

template <std::size_t N>
struct codec<std::array<std::uint8_t, N>> : detail::plain<std::array<std::uint8_t, N>> {
    static std::string kind() { return "[u8; " + std::to_string(N) + "]"; }
};

template <std::size_t N>
struct codec<std::array<std::byte, N>> : detail::plain<std::array<std::byte, N>> {
    static std::string kind() { return "[u8; " + std::to_string(N) + "]"; }
};

template <>
struct codec<std::monostate> : detail::packed<std::monostate, codec<std::monostate>> {
    static std::string kind() { return "()"; }
    static void pack(std::string&, const std::monostate&) {}
    static std::monostate unpack(const char*&, const char*) { return {}; }
};

template <class T>
struct codec<std::optional<T>> : detail::packed<std::optional<T>, codec<std::optional<T>>> {
    static std::string kind() { return "Option<" + codec<T>::kind() + ">"; }
    static void pack(std::string& to, const std::optional<T>& value) {
        to.push_back(value ? '\1' : '\0');
        if (value) codec<T>::pack(to, *value);
    }
    static std::optional<T> unpack(const char*& from, const char* end) {
        char is_there = 0;
        detail::take(from, end, &is_there, 1);
        if (is_there == 0) return std::nullopt;
        return codec<T>::unpack(from, end);
    }
};

template <class... Elements>
struct codec<std::tuple<Elements...>> : detail::elements<std::tuple<Elements...>, Elements...> {};

template <class First, class Second>
struct codec<std::pair<First, Second>> : detail::elements<std::pair<First, Second>, First, Second> {};

}  // namespace bristlecone

#endif
