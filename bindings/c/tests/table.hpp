// The table of all languages: its JSON, and its keys and values as bytes. Included by conformance.cpp.
#ifndef TABLE_HPP
#define TABLE_HPP

#include "check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
    if (kind.rfind("Expiring<", 0) == 0) {
        const std::string inner = kind.substr(9, kind.size() - 10);
        return raw(static_cast<std::uint64_t>(integer(value.elements[0].word))) + packed(inner, value.elements[1]);
    }
    if (kind[0] != '(') return datum_of_text(kind, value.word);
    bytes found;
    const auto kinds = elements_of(kind);
    for (std::size_t at = 0; at < kinds.size(); ++at) found += packed(kinds[at], value.elements[at]);
    return found;
}

bytes packed(const std::string& kind, const json& value) {
    const bytes found = datum(kind, value);
    const bool is_counted = kind == "str" || kind == "bytes" || kind == "json" || kind == "postcard";
    return is_counted ? raw(static_cast<std::uint64_t>(found.size())) + found : found;
}

bool is_of_another_kind(const json& step) {
    return std::any_of(step.members.begin(), step.members.end(), [](const auto& member) { return member.second.has("kind"); });
}

}  // namespace

#endif
