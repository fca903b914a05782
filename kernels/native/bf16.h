// bfloat16 in sixteen lanes: widening, rounding, and the dot product of pairs.
#pragma once
#include "vec.h"

namespace hr {

using Bf16 = uint16_t;

HR_INLINE F16 load_bf16(const Bf16* p) {
  U16 out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    HalfPart half;
    std::memcpy(&half, p + i * PART, sizeof half);
    out.part[i] = __builtin_convertvector(half, WordPart) << 16;
  }
  return as_float(out);
}

// To nearest, ties to even; NaN stays a (quiet) NaN; denormals become zeros of their sign, as VCVTNEPS2BF16 does it.
HR_INLINE void store_bf16(Bf16* p, const F16& x) {
#if defined(__AVX512BF16__)
  const __m256bh half = _mm512_cvtneps_pbh((__m512)x.part[0]);
  std::memcpy(p, &half, sizeof half);
#else
  const U16 bits = as_words(x);
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    const WordPart a = bits.part[i];
    const WordPart magnitude = a & 0x7FFFFFFFu;
    WordPart rounded = a + 0x7FFFu + (a >> 16 & 1u);
    rounded = magnitude > 0x7F800000u ? (a | 0x00400000u) : rounded;
    rounded = magnitude < 0x00800000u ? (a & 0x80000000u) : rounded;
    const HalfPart half = __builtin_convertvector(rounded >> 16, HalfPart);
    std::memcpy(p + i * PART, &half, sizeof half);
  }
#endif
}
HR_INLINE void store_bf16_n(Bf16* p, const F16& x, int n) {
  if (n >= LANES) return store_bf16(p, x);
  Bf16 lanes[LANES];
  store_bf16(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

// sum + a · b over pairs: the odd member first, each product one rounded FMA (what VDPBF16PS does).
HR_INLINE F16 dot_pairs(const F16& sum, const U16& a, const U16& b) {
#if defined(__AVX512BF16__)
  F16 out;
  out.part[0] = (FloatPart)_mm512_dpbf16_ps((__m512)sum.part[0], (__m512bh)a.part[0], (__m512bh)b.part[0]);
  return out;
#else
  const U16 high = splat_word(0xFFFF0000u);
  const F16 odd = fma(as_float(a & high), as_float(b & high), sum);
  return fma(as_float(shift_left<16>(a)), as_float(shift_left<16>(b)), odd);
#endif
}

// Rounded to the type of a matrix input: float32 as it is, bfloat16 by store_bf16.
HR_INLINE void store_as(float* p, const F16& x, int n) { store_n(p, x, n); }
HR_INLINE void store_as(Bf16* p, const F16& x, int n) { store_bf16_n(p, x, n); }

}  // namespace hr
