// bristlecone.hpp, with correct and incorrect use.
#include "check.h"

#include "bristlecone.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <thread>
#if __cplusplus >= 202002L
#include <ranges>
#endif

namespace {

using bristlecone::error;
using bristlecone::pool;
using bristlecone::tree;
using std::optional;
using std::string;

bristlecone::options small() {
    bristlecone::options how;
    how.create = true;
    how.max_bytes = 64 << 20;
    how.recovery_threads = 1;
    return how;
}

/// The status of a function's exception.
template <class F>
int thrown(F&& work) {
    try {
        work();
    } catch (const error& refused) {
        CHECK(refused.what()[0] != 0);
        return refused.status();
    }
    return BRISTLECONE_OK;
}

/// A tree of any types stores its items, in order.
template <class K, class V>
void keeps(pool& in, const string& name, std::vector<std::pair<typename tree<K, V>::key_type, typename tree<K, V>::mapped_type>> items) {
    auto kept = in.tree<K, V>(name);
    for (auto item = items.rbegin(); item != items.rend(); ++item) kept.put(item->first, item->second);
    CHECK(kept.size() == items.size() && !kept.empty());
    std::size_t at = 0;
    for (const auto& item : kept.range()) CHECK(item == items[at++]);
    CHECK(at == items.size());
    for (const auto& item : kept.range().reversed()) CHECK(item == items[--at]);
    CHECK(kept.first() == items.front() && kept.last() == items.back());
    for (const auto& [key, value] : items) {
        CHECK(kept.contains(key) && kept.get(key) == value);
        CHECK(!kept.insert(key, value));
        CHECK(kept.exchange(key, value) == value);
        CHECK(kept.update(key, items[0].second) == value);
        CHECK(kept.compare_and_swap(key, items[0].second, value));
        CHECK(kept.remove(key) == value && !kept.remove(key) && !kept.get(key) && !kept.update(key, value));
        optional<typename tree<K, V>::mapped_type> found = value;
        CHECK(!kept.compare_and_swap(key, value, value, &found) && !found);
        CHECK(kept.insert(key, value));
    }
    auto from = kept.range(items[1].first, items[2].first);
    CHECK(from.next() == items[1] && !from.next() && !from.next_back());
    CHECK(kept.from(items[2].first).next() == items[2] && kept.below(items[1].first).next_back() == items[0]);
    CHECK(kept.check().empty());
    CHECK(thrown([&] { in.tree<K, std::array<std::uint8_t, 99>>(name); }) == BRISTLECONE_USAGE);
}

void kinds() {
    const string path = scratch("kinds");
    pool in(path, small());
    keeps<std::uint64_t, std::uint64_t>(in, "u64", {{0, 1}, {7, 2}, {UINT64_MAX, UINT64_MAX}});
    keeps<std::int32_t, float>(in, "i32", {{-7, -1.5f}, {0, 0.0f}, {7, 1e9f}});
    keeps<double, bool>(in, "f64", {{-1e300, true}, {-0.5, false}, {0.5, true}});
    keeps<char32_t, std::int8_t>(in, "char", {{U'a', 1}, {U'ä', -1}, {U'\U0001f332', 0}});
    keeps<string, std::uint16_t>(in, "str", {{"", 1}, {"a", 2}, {string("a\0b", 3), 3}});
    keeps<bristlecone::bytes, string>(in, "bytes", {{"", ""}, {"\x7f", "x"}, {"\xff\xfe", "ä"}});
    keeps<std::array<std::uint8_t, 2>, bristlecone::bytes>(in, "array", {{{0, 1}, "a"}, {{0, 2}, ""}, {{1, 0}, "c"}});
    keeps<optional<string>, std::monostate>(in, "option", {{std::nullopt, {}}, {"", {}}, {"a", {}}});
    keeps<std::tuple<string, std::int64_t, optional<bool>>, std::pair<std::uint8_t, string>>(
        in, "tuple", {{{"a", -1, false}, {1, "x"}}, {{"a", 1, std::nullopt}, {2, ""}}, {{"b", 0, true}, {3, "z"}}});
    keeps<std::tuple<std::uint8_t>, std::array<std::byte, 1>>(in, "one", {{{1}, {}}, {{2}, {}}, {{3}, {}}});
    auto documents = in.tree<std::uint64_t, bristlecone::json>("json");
    documents.put(1, "[1]");
    CHECK(thrown([&] { documents.put(1, "["); }) == BRISTLECONE_USAGE);
    CHECK(in.trees().size() == 11 && in.trees()[4].key_kind == "str" && in.trees()[4].design == "nbtree");
    CHECK(documents.info().items == 1 && in.info().max_bytes >= 64 << 20 && in.check().empty());
    unlink(path.c_str());
}

void lifetimes() {
    const string path = scratch("lifetimes");
    optional<tree<string, string>> kept;
    optional<bristlecone::range<string, string>> items;
    {
        pool in(path, small());
        kept = in.tree<string, string>("t");
        CHECK(thrown([&] { in.close(); }) == BRISTLECONE_IN_USE);
        CHECK(thrown([&] { in.drop_tree("t"); }) == BRISTLECONE_IN_USE);
    }
    // The pool's handle was destroyed first.
    kept->put("a", "1");
    kept->put("b", "2");
    CHECK(kept->prefix("b").next()->second == "2" && !kept->prefix("c").next() && kept->prefix("").next()->first == "a");
    items = kept->range();
    auto copy = *kept;
    kept.reset();
    CHECK(copy.get("b") == "2");
    CHECK(thrown([&] { pool again(path); }) == BRISTLECONE_IN_USE);
    CHECK(items->next()->first == "a" && items->next_back()->first == "b");
    copy = tree<string, string>(copy);
    items.reset();
    kept = std::move(copy);
    kept.reset();
    pool again(path);
    CHECK(again.info().was_clean);
    again.rename_tree("t", "u");
    again.clear_tree("u");
    CHECK(again.tree<string, string>("u").empty());
    again.drop_tree("u");
    again.close();
    CHECK(thrown([&] { again.check(); }) == BRISTLECONE_USAGE);
    CHECK(thrown([&] { again.tree<string, string>("u"); }) == BRISTLECONE_USAGE);
    CHECK(thrown([] { pool none("/dev/shm/bristlecone-c-none"); }) == BRISTLECONE_ABSENT);
    unlink(path.c_str());
}

void callbacks() {
    const string path = scratch("callbacks");
    pool in(path, small());
    auto texts = in.create_tree<std::uint64_t, string>("texts", "nbtree", {{"block_bytes", 512}});
    texts.put(7, "one two three");
    std::size_t spaces = 0;
    CHECK(texts.get_with(7, [&](std::string_view text) { spaces = static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')); }));
    CHECK(spaces == 2 && !texts.get_with(8, [](std::string_view) { throw 1; }));
    int caught = 0;
    try {
        texts.get_with(7, [](std::string_view) { throw 42; });
    } catch (int number) {
        caught = number;
    }
    CHECK(caught == 42 && texts.get(7) == "one two three");
    unlink(path.c_str());
}

void many() {
    const string path = scratch("many");
    pool in(path, small());
    auto squares = in.tree<std::uint64_t, std::uint64_t>("squares");
    std::vector<std::uint64_t> keys(1000), values(1000);
    for (std::uint64_t key = 0; key < 1000; ++key) {
        keys[key] = key;
        values[key] = key * key;
    }
    std::size_t done = 0;
    squares.put_many(keys, values, &done);
    CHECK(done == 1000 && thrown([&] { squares.put_many(keys, {1}); }) == BRISTLECONE_USAGE);
    const auto got = squares.get_many({1, 31, 1000});
    CHECK(got[0] == 1u && got[1] == 961u && !got[2]);
    std::vector<std::thread> threads;
    for (std::uint64_t number = 0; number < 4; ++number) {
        threads.emplace_back([copy = squares, number]() mutable {
            for (std::uint64_t key = number; key < 4000; key += 4) copy.put(key, key);
        });
    }
    for (auto& thread : threads) thread.join();
    std::uint64_t sum = 0;
    for (const auto& [key, value] : squares.range(10, 20)) sum += key + value;
    CHECK(sum == 290 && squares.size() == 4000);
    CHECK(squares.remove_range(10, 20) == 10 && squares.remove_from(3000) == 1000 && squares.remove_below(10) == 10);
    CHECK(squares.size() == 2980 && squares.clear() == 2980 && squares.empty());
    auto names = in.tree<string, std::uint64_t>("names");
    for (const char* name : {"a", "ab", "abc", "b"}) names.put(name, 1);
    CHECK(names.remove_prefix("ab") == 2 && names.size() == 2);
    unlink(path.c_str());
}

void several() {
    const string path = scratch("several");
    pool in(path, small());
    auto accounts = in.tree<string, std::uint64_t>("accounts");
    auto pending = in.tree<std::uint64_t, string>("pending");
    const string long_text(5000, 'x');
    CHECK(in.batch().expect(accounts, "alice", std::nullopt).put(accounts, "alice", 100).put(pending, 1, long_text).commit());
    CHECK(!in.batch().expect(accounts, "alice", 7).put(accounts, "alice", 1).commit() && accounts.get("alice") == 100);
    auto forgotten = in.batch();
    forgotten.remove(accounts, "alice");
    const auto then = in.snapshot();
    CHECK(in.batch().expect(accounts, "alice", 100).remove(pending, 1).commit());
    accounts.put("bob", 1);
    CHECK(then.get(pending, 1) == long_text && !then.get(accounts, "bob") && !pending.get(1));
    std::size_t items = 0;
    for (const auto& item : then.range(accounts)) items += item.second == 100;
    CHECK(items == 1 && !then.range(accounts, "b", "c").next() && then.bytes() > 0);

    std::vector<std::thread> threads;
    for (int number = 0; number < 2; ++number) {
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) {
                in.transaction([&](bristlecone::transaction& moved) {
                    moved.put(accounts, "alice", *moved.get(accounts, "alice") - 1);
                    moved.put(accounts, "bob", *moved.get(accounts, "bob") + 1);
                });
            }
        });
    }
    for (auto& thread : threads) thread.join();
    CHECK(accounts.get("alice") == 0 && accounts.get("bob") == 101);
    const auto sum = in.transaction([&](bristlecone::transaction& read) {
        std::uint64_t found = 0;
        for (const auto& item : read.range(accounts, "a", "z")) found += item.second;
        read.remove(accounts, "bob");
        return found;
    });
    CHECK(sum == 101 && !accounts.contains("bob"));
    int caught = 0;
    try {
        in.transaction([&](bristlecone::transaction& half) {
            half.put(accounts, "alice", 7);
            throw 42;
        });
    } catch (int number) {
        caught = number;
    }
    CHECK(caught == 42 && accounts.get("alice") == 0);
    CHECK(thrown([&] {
              in.transaction(
                  [&](bristlecone::transaction& late) {
                      accounts.put("alice", *late.get(accounts, "alice") + 1);
                      late.put(accounts, "alice", 0);
                  },
                  3);
          }) == BRISTLECONE_CONFLICT);
    CHECK(accounts.get("alice") == 3);
    unlink(path.c_str());
}

void follow() {
    const string path = scratch("follow-cpp");
    bristlecone::options how;
    how.follow = true;
    CHECK(thrown([&] { pool(path, how); }) == BRISTLECONE_ABSENT);
    pool writer(path, small());
    optional ages = writer.tree<string, std::uint64_t>("ages");
    ages->put("Methuselah", 4857);
    pool follower(path, how);
    CHECK(follower.info().following && !writer.info().following);
    auto followed = follower.tree<string, std::uint64_t>("ages");
    ages->put("Prometheus", 4900);
    CHECK(followed.get("Prometheus") == 4900u && !followed.get("Pando") && followed.size() == 2);
    CHECK(thrown([&] { followed.put("Pando", 16000); }) == BRISTLECONE_READ_ONLY);
    ages.reset();
    writer.close();
    CHECK(thrown([&] { followed.get("Prometheus"); }) == BRISTLECONE_NO_WRITER);
    CHECK(thrown([&] { followed.size(); }) == BRISTLECONE_NO_WRITER);
    CHECK(thrown([&] { for (const auto& [name, age] : followed.range()) CHECK(name.size() > age); }) == BRISTLECONE_NO_WRITER);
    CHECK(thrown([&] { pool(path, how); }) == BRISTLECONE_NO_WRITER);
    unlink(path.c_str());
}

/// Options, syncs, checkpoints and the state of a journal.
void journal() {
    const string path = scratch("journal-cpp");
    const string folder = path + ".elsewhere";
    bristlecone::options how = small();
    how.durability = BRISTLECONE_DURABILITY_INTERVAL;
    CHECK(thrown([&] { pool refused(path, how); }) == BRISTLECONE_USAGE);
    how.domain = BRISTLECONE_DOMAIN_JOURNAL;
    how.interval_ms = 1000 * 1000;
    how.journal = folder;
    {
        pool in(path, how);
        in.tree<std::uint64_t, std::uint64_t>("words").put(1, 2);
        const auto before = in.journal_status();
        CHECK(before && before->durability == BRISTLECONE_DURABILITY_INTERVAL && before->interval_ms == how.interval_ms);
        CHECK(before->durable_lsn < before->lsn);
        in.sync();
        CHECK(in.journal_status()->durable_lsn == before->lsn);
        in.checkpoint();
        CHECK(in.journal_status()->checkpoint_lsn == before->lsn);
        in.prune_journal();
        in.close();
    }
    CHECK(thrown([&] { pool refused(path); }) == BRISTLECONE_ABSENT);
    CHECK((pool(path, how).tree<std::uint64_t, std::uint64_t>("words").get(1) == 2));
    CHECK(std::filesystem::remove_all(folder) == 5);
    unlink(path.c_str());
    how = small();
    pool plain(path, how);
    CHECK(!plain.journal_status());
    CHECK(thrown([&] { plain.checkpoint(); }) == BRISTLECONE_USAGE);
    unlink(path.c_str());
}

#if __cplusplus >= 202002L
/// Parts of a tree are ranges of the standard library.
void ranges() {
    using part = bristlecone::range<string, std::uint64_t>;
    static_assert(std::ranges::input_range<part> && std::ranges::view<std::views::all_t<part>>);
    const string path = scratch("ranges");
    pool in(path, small());
    auto ages = in.tree<string, std::uint64_t>("ages");
    for (const char* name : {"Methuselah", "Pando", "Prometheus", "Schulman"}) ages.put(name, 4000 + string(name).size());
    string found;
    auto old = [](const auto& item) { return item.second > 4005; };
    for (const auto& [name, age] : ages.range("N", "Z") | std::views::filter(old) | std::views::take(1)) found += name;
    CHECK(found == "Prometheus");
    auto all = ages.range();
    CHECK(std::ranges::count_if(all, [](const auto& item) { return item.first[0] == 'P'; }) == 2);
    unlink(path.c_str());
}
#endif

}  // namespace

int main() {
#if __cplusplus >= 202002L
    ranges();
#endif
    kinds();
    lifetimes();
    callbacks();
    many();
    several();
    follow();
    journal();
    std::cout << "api.cpp: all is well" << std::endl;
    return 0;
}
