// Register tiles of a product: a few tokens by 48 columns from any multiple of 16 on, one file a class of weights.
#pragma once
#include <cstdint>
#include <utility>

#include "api.h"
#include "panel.h"

namespace hr {

#if defined(__AVX512BF16__)
constexpr int GROUP_TOKENS = 8;  // 24 of 32 registers hold sums
#elif defined(__AVX512F__)
constexpr int GROUP_TOKENS = 6;
#elif defined(__AVX2__)
constexpr int GROUP_TOKENS = 4;
#else
constexpr int GROUP_TOKENS = 2;
#endif

// Vectors of a panel taken at once: with 16 registers, two to a vector, only one beside several tokens.
constexpr int vectors_at_once(int tokens) { return PARTS == 1 || (PARTS == 2 && tokens == 1) ? PANEL_VECTORS : 1; }

// What a tile asks memory for (ahead.h): so many bytes from there on with each step.
struct Ahead {
  const char* at;
  int64_t step_bytes;
  Ahead from(int64_t step) const { return {at + step * step_bytes, step_bytes}; }
};

// y [tokens, 48] = (s0 + s1) + … for up to GROUP_TOKENS tokens and the 48 columns from `vector` on, tokens y_stride apart;
// vectors past the last repeat it. `unpacked`: null, or the weight's integers as unpack_columns() left them.
struct TileArgs {
  const HrLinear* weight;
  const void* x;  // the first token
  int64_t vector;
  const uint32_t* unpacked;
  float* y;
  int64_t y_stride;
  Ahead ahead;
};
using Multiply = void (*)(const TileArgs&);

// The kernel for this many tokens among those that `Of<R>::run` are.
template <template <int> class Of, int... I>
Multiply multiply_for(int64_t tokens, std::integer_sequence<int, I...>) {
  static constexpr Multiply TABLE[] = {Of<I + 1>::run...};
  return TABLE[tokens - 1];
}
template <template <int> class Of>
Multiply multiply_for(int64_t tokens) {
  return multiply_for<Of>(tokens, std::make_integer_sequence<int, GROUP_TOKENS>{});
}

Multiply multiply_int8(int64_t tokens);
Multiply multiply_int8w(int64_t tokens);

// The integers of 48 columns of an int8w weight as pairs of bfloat16, [⌈K / 2⌉][48] words: worth it where many tokens read
// them.
int64_t unpacked_words(const HrLinear&);
void unpack_columns(const HrLinear&, int64_t vector, uint32_t* to);

}  // namespace hr
