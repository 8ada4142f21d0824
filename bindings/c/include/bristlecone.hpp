// Bristlecone for C++17: one header over bristlecone.h, nothing to link besides.
//
//     bristlecone::pool pool("/dev/shm/trees.pool", {.create = true});   // designated initializers: C++20
//     auto ages = pool.tree<std::string, std::uint64_t>("ages");
//     ages.put("Methuselah", 4857);                                       // durable when it returns
//     for (const auto& [name, age] : ages.range("M", "N")) std::cout << name << ": " << age << '\n';
//
// Errors are exceptions: bristlecone::error has the status of bristlecone.h and its message. Expected results are
// not exceptions: an absent key is an empty std::optional or false, and inserting an existing key is false. After
// an exception, the guarantees of the call of the same name in bristlecone.h hold: nothing has changed, except
// after BRISTLECONE_DURABILITY_LOST.
//
// Handles close themselves, in any order: a tree keeps its pool open, a range keeps both. Call pool::close to be
// certain that a pool is closed; it reports why it cannot be. Any number of threads may use pools and trees at the
// same time; only one may use a range.
//
// Licence: MIT or Apache-2.0.
#ifndef BRISTLECONE_HPP
#define BRISTLECONE_HPP

#include "bristlecone/codec.hpp"
#include "bristlecone/error.hpp"
#include "bristlecone/expiring.hpp"
#include "bristlecone/pool.hpp"
#include "bristlecone/range.hpp"
#include "bristlecone/several.hpp"
#include "bristlecone/tree.hpp"

#endif
