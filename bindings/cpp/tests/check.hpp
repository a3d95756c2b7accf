// What the programs have in common: each stops at the first promise that is not kept.
#pragma once

#include <cachette.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,                     \
                         cachette_last_error());                                                                      \
            std::exit(1);                                                                                             \
        }                                                                                                             \
    } while (0)

// The expression throws `type`, and the text has `words`.
#define THROWS(expression, type, words)                                                                               \
    do {                                                                                                              \
        bool thrown = false;                                                                                          \
        try {                                                                                                         \
            (void)(expression);                                                                                       \
        } catch (type const &failed) {                                                                                \
            thrown = true;                                                                                            \
            CHECK(std::string{failed.what()}.find(words) != std::string::npos);                                       \
        }                                                                                                             \
        CHECK(thrown);                                                                                                \
    } while (0)

constexpr std::size_t MIB = std::size_t{1} << 20;
