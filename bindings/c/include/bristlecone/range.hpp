// Iterating over the items of a tree. Part of bristlecone.hpp.
#ifndef BRISTLECONE_RANGE_HPP
#define BRISTLECONE_RANGE_HPP

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "codec.hpp"

namespace bristlecone {

/// Items of a tree within bounds, in order, from both ends. Single-pass: to iterate again, get another range from the
/// tree. `K` and `V` are those of the tree's type.
template <class K, class V>
class range {
public:
    using value_type = std::pair<typename codec<K>::owned, typename codec<V>::owned>;

    /// Moves forward, or backward.
    template <bool Forward>
    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = range::value_type;
        using difference_type = std::ptrdiff_t;
        using pointer = const value_type*;
        using reference = const value_type&;

        iterator() = default;
        explicit iterator(range* items) : items_(items) { ++*this; }

        reference operator*() const { return *item_; }
        pointer operator->() const { return &*item_; }
        iterator& operator++() {
            item_ = Forward ? items_->next() : items_->next_back();
            return *this;
        }
        void operator++(int) { ++*this; }
        /// Only end iterators are equal.
        friend bool operator==(const iterator& a, const iterator& b) { return !a.item_ && !b.item_; }
        friend bool operator!=(const iterator& a, const iterator& b) { return !(a == b); }

    private:
        range* items_ = nullptr;
        std::optional<value_type> item_;
    };

    /// The same items in descending order.
    class backward {
    public:
        explicit backward(range&& items) : items_(std::move(items)) {}
        iterator<false> begin() { return iterator<false>(&items_); }
        iterator<false> end() { return {}; }

    private:
        range items_;
    };

    range(std::shared_ptr<bristlecone_tree> tree, const bristlecone_range& bounds) : tree_(std::move(tree)) {
        bristlecone_iter* opened = nullptr;
        detail::check(bristlecone_iter_open(tree_.get(), &bounds, &opened));
        iter_.reset(opened);
    }

    /// Takes an iterator of the C library.
    range(std::shared_ptr<bristlecone_tree> tree, bristlecone_iter* opened) : tree_(std::move(tree)), iter_(opened) {}

    iterator<true> begin() { return iterator<true>(this); }
    iterator<true> end() { return {}; }

    /// The same items in descending order: `for (const auto& [key, value] : tree.range().reversed())`.
    backward reversed() && { return backward(std::move(*this)); }

    /// The next item from the front; none at the end.
    std::optional<value_type> next() { return step(bristlecone_iter_next, bristlecone_iter_next_u64); }

    /// The next item from the back; none when the front has returned the others.
    std::optional<value_type> next_back() { return step(bristlecone_iter_next_back, bristlecone_iter_next_back_u64); }

private:
    struct close {
        void operator()(bristlecone_iter* iter) const { bristlecone_iter_close(iter); }
    };

    template <class Step, class StepWords>
    std::optional<value_type> step(Step any, StepWords words) {
        if constexpr (detail::is_word<K> && detail::is_word<V>) {
            static_cast<void>(any);
            std::uint64_t key = 0;
            std::uint64_t value = 0;
            if (!detail::unless(words(iter_.get(), &key, &value, 1, nullptr), BRISTLECONE_ABSENT)) return std::nullopt;
            return value_type(key, value);
        } else {
            static_cast<void>(words);
            const void* key = nullptr;
            const void* value = nullptr;
            std::size_t key_bytes = 0;
            std::size_t value_bytes = 0;
            const int status = any(iter_.get(), &key, &key_bytes, &value, &value_bytes);
            if (!detail::unless(status, BRISTLECONE_ABSENT)) return std::nullopt;
            return value_type(codec<K>::read(key, key_bytes), codec<V>::read(value, value_bytes));
        }
    }

    std::shared_ptr<bristlecone_tree> tree_;
    std::unique_ptr<bristlecone_iter, close> iter_;
};

}  // namespace bristlecone

#endif
