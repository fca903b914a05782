// Philox4x32-10 and the Gumbel noise of token ids made from it.
//
// Source: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include <cstdint>

#include "vec_math.h"

namespace hr {

constexpr uint32_t KIND_TOKEN = 0;  // second counter word: what a draw is for
constexpr int PHILOX_ROUNDS = 10;
constexpr uint32_t PHILOX_MULTIPLIER[2] = {0xD2511F53u, 0xCD9E8D57u};
constexpr uint32_t PHILOX_KEY_STEP[2] = {0x9E3779B9u, 0xBB67AE85u};
constexpr int NOISE_BLOCK = 32;  // ids whose noise is made at once

struct Noise {
  uint64_t key;
  uint32_t position;
};

// The word of one id: lane id mod 4 at counter (position, kind, id / 4, 0).
inline uint32_t philox_word(const Noise& noise, uint32_t id) {
  uint32_t c[4] = {noise.position, KIND_TOKEN, id / 4, 0};
  uint32_t k0 = static_cast<uint32_t>(noise.key), k1 = static_cast<uint32_t>(noise.key >> 32);
  for (int round = 0; round < PHILOX_ROUNDS; ++round) {
    const uint64_t p0 = uint64_t{c[0]} * PHILOX_MULTIPLIER[0], p1 = uint64_t{c[2]} * PHILOX_MULTIPLIER[1];
    c[0] = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    c[1] = static_cast<uint32_t>(p1);
    c[2] = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[3] = static_cast<uint32_t>(p0);
    k0 += PHILOX_KEY_STEP[0];
    k1 += PHILOX_KEY_STEP[1];
  }
  return c[id % 4];
}

constexpr int PART_COUNTERS = PART / 2;
typedef uint64_t LongPart __attribute__((vector_size(PART * 4)));

// Products of the low halves of 64-bit lanes; the high halves do not matter.
HR_INLINE LongPart multiply_low(LongPart a, uint32_t b) {
  const LongPart factor = LongPart{} + b;
#if defined(__AVX512F__)
  return (LongPart)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)factor);
#elif defined(__AVX2__)
  return (LongPart)_mm256_mul_epu32((__m256i)a, (__m256i)factor);
#elif defined(__x86_64__)
  return (LongPart)_mm_mul_epu32((__m128i)a, (__m128i)factor);
#else
  return (a & 0xFFFFFFFFu) * factor;
#endif
}

// Lanes of a and b in turn: the first half of them, then the second.
HR_INLINE LongPart interleave_first(LongPart a, LongPart b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
#else
  return __builtin_shufflevector(a, b, 0, 2);
#endif
}
HR_INLINE LongPart interleave_second(LongPart a, LongPart b) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
#elif defined(__AVX2__)
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
#else
  return __builtin_shufflevector(a, b, 1, 3);
#endif
}

// The words of ids first … first + 31; `first` is a multiple of 4.
HR_INLINE void philox_words(const Noise& noise, uint32_t first, U16 (&words)[2]) {
#pragma GCC unroll 4
  for (int part = 0; part < PARTS; ++part) {
    LongPart c0 = LongPart{} + noise.position, c1 = LongPart{} + KIND_TOKEN, c2, c3{};
    for (int i = 0; i < PART_COUNTERS; ++i) c2[i] = first / 4 + part * PART_COUNTERS + i;
    uint32_t k0 = static_cast<uint32_t>(noise.key), k1 = static_cast<uint32_t>(noise.key >> 32);
#pragma GCC unroll 10
    for (int round = 0; round < PHILOX_ROUNDS; ++round) {
      const LongPart p0 = multiply_low(c0, PHILOX_MULTIPLIER[0]), p1 = multiply_low(c2, PHILOX_MULTIPLIER[1]);
      c0 = (p1 >> 32) ^ c1 ^ uint64_t{k0};
      c1 = p1;
      c2 = (p0 >> 32) ^ c3 ^ uint64_t{k1};
      c3 = p0;
      k0 += PHILOX_KEY_STEP[0];
      k1 += PHILOX_KEY_STEP[1];
    }
    const LongPart low = (c0 & 0xFFFFFFFFu) | c1 << 32, high = (c2 & 0xFFFFFFFFu) | c3 << 32;
    const WordPart halves[2] = {(WordPart)interleave_first(low, high), (WordPart)interleave_second(low, high)};
    for (int i = 0; i < 2; ++i) words[(2 * part + i) / PARTS].part[(2 * part + i) % PARTS] = halves[i];
  }
}

// −log(−log u), u = ((word >> 9) + ½) · 2⁻²³.
HR_INLINE F16 gumbel(const U16& words) {
  const F16 whole = as_float(shift_right<9>(words) | splat_word(0x4B000000u)) - splat(8388608.0f);
  const F16 uniform = (whole + splat(0.5f)) * splat(0x1p-23f);
  return zero() - log(zero() - log(uniform));
}

}  // namespace hr
