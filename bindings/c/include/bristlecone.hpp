// Bristlecone for C++17: one header over bristlecone.h, nothing to link besides.
//
//     bristlecone::pool pool("/dev/shm/trees.pool", {.create = true});   // designated initializers: C++20
//     auto ages = pool.tree<std::string, std::uint64_t>("ages");
//     ages.put("Methuselah", 4857);                                       // durable when it returns
//     for (const auto& [name, age] : ages.range("M", "N")) std::cout << name << ": " << age << '\n';
//
// Errors are exceptions: bristlecone::error has the status of bristlecone.h and its message. What is no error is no
// exception: an absent key is an empty std::optional or false, a key that is there already is false. After an exception
// holds what bristlecone.h says of the call of the same name: nothing has changed, but for BRISTLECONE_DURABILITY_LOST.
//
// Handles close themselves, whatever the order in which they go: a tree keeps its pool open, a range keeps both. A
// pool that must be closed for certain is closed by pool::close, which says why it cannot. Pools and trees may be used
// by any number of threads at the same time, a range by one.
//
// Licence: MIT or Apache-2.0.
#ifndef BRISTLECONE_HPP
#define BRISTLECONE_HPP

#include "bristlecone/codec.hpp"
#include "bristlecone/error.hpp"
#include "bristlecone/pool.hpp"
#include "bristlecone/range.hpp"
#include "bristlecone/several.hpp"
#include "bristlecone/tree.hpp"

#endif
