// Asking memory for what a later tile reads while this one computes, so that neither waits for the other.
//
// The processor looks ahead by itself, but not past the end of a page, and not while a panel that several groups of tokens
// need is read once more from the cache. What is asked for goes to the second-level cache: the first has no room for it. What
// is read once passes by that one: there and behind it stays what is read again, by this step or by the machine's other
// processes, which run for a moment between two steps and would find nothing but weights.
#pragma once
#include <cstdint>

#include "panel.h"

namespace hr {

constexpr int64_t TILES_AHEAD = 1;  // a thread's tiles are neighbours

HR_INLINE void ask_for(const void* line) { __builtin_prefetch(line, 0, 2); }
HR_INLINE void ask_to_write(void* line) { __builtin_prefetch(line, 1, 2); }

// So many lines from an address on.
template <int Lines, bool IsReadAgain>
struct Ask {
  HR_INLINE static void at(const char* line) {
#pragma GCC unroll 3
    for (int i = 0; i < Lines; ++i) __builtin_prefetch(line + i * LINE_BYTES, 0, IsReadAgain ? 2 : 0);
  }
};

}  // namespace hr
