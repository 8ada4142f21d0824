// Five minutes in C++: typed trees, iteration, results and exceptions.
//
//     c++ -std=c++17 tour.cpp $(pkg-config --cflags --libs bristlecone) -o tour && ./tour /dev/shm/tour.pool
#include <bristlecone.hpp>

#include <iostream>

int main(int argc, char** argv) try {
    if (argc != 2) {
        std::cerr << "usage: tour POOL\n";
        return BRISTLECONE_USAGE;
    }
    bristlecone::options how;
    how.create = true;
    how.max_bytes = 1 << 30;
    bristlecone::pool pool(argv[1], how);

    auto ages = pool.tree<std::string, std::uint64_t>("ages");
    ages.put("Methuselah", 4857);  // durable when it returns
    ages.put("Prometheus", 4862);
    ages.put("Pando", 14000);
    if (!ages.insert("Pando", 16000)) std::cout << "Pando is " << *ages.get("Pando") << " already\n";
    for (const auto& [name, age] : ages.range("M", "Pb")) std::cout << name << ": " << age << '\n';
    for (const auto& [name, age] : ages.range().reversed()) std::cout << name << " backwards\n";

    // Keys of several parts order by the first differing part.
    auto visits = pool.tree<std::tuple<std::string, std::uint32_t>, std::uint64_t>("visits by page and year");
    visits.put({"/about", 2026}, 7);
    visits.put({"/", 2026}, 12);
    std::cout << std::get<0>(visits.first()->first) << " has " << visits.first()->second << " visits\n";

    // Passed in place, without a copy.
    auto texts = pool.tree<std::uint64_t, std::string>("texts");
    texts.put(1, "a long text");
    texts.get_with(1, [](std::string_view text) { std::cout << text.size() << " bytes\n"; });

    try {
        pool.tree<std::uint64_t, std::uint64_t>("texts");
    } catch (const bristlecone::error& refused) {
        std::cout << "refused: " << refused.what() << '\n';
    }
    return 0;
} catch (const bristlecone::error& failed) {
    std::cerr << "tour: " << failed.what() << '\n';
    return failed.status();
}
