// Eight-bit integers in sixteen lanes: exact dots of four, and their making.
//
// Inputs are stored with 128 added, unsigned, because that is what the instruction multiplies by signed weights; a packed
// weight carries −128 Σ q, from which its sums begin. Nothing saturates at any level.
#pragma once
#include "vec.h"

namespace hr {

constexpr int32_t INPUT_OFFSET = 128;
constexpr float QUANTISED_MOST = 127.0f;
constexpr float SMALLEST_SCALE = 0x1p-126f;
constexpr float ROUNDING_BIAS = 0x1.8p23f;

typedef uint8_t BytePart __attribute__((vector_size(PART)));
typedef int8_t SignedPart __attribute__((vector_size(PART)));

#if defined(__AVX512VNNI__)
using Quads = U16;  // four K a lane, as a product takes them

HR_INLINE Quads weight_quads(const U16& w) { return w; }
HR_INLINE Quads input_quads(uint32_t x) { return splat_word(x); }
HR_INLINE U16 dot_quads(const U16& sum, const Quads& x, const Quads& w) {
  U16 out;
  out.part[0] = (WordPart)_mm512_dpbusd_epi32((__m512i)sum.part[0], (__m512i)x.part[0], (__m512i)w.part[0]);
  return out;
}
#else
struct Quads {  // members 0 and 2, 1 and 3, as sixteen bits each
  U16 even, odd;
};
typedef int16_t ShortPart __attribute__((vector_size(PART * 4)));

HR_INLINE Quads weight_quads(const U16& w) {
  Quads out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    const ShortPart both = (ShortPart)w.part[i];
    out.even.part[i] = (WordPart)((ShortPart)(w.part[i] << 8) >> 8);
    out.odd.part[i] = (WordPart)(both >> 8);
  }
  return out;
}
HR_INLINE Quads input_quads(uint32_t x) { return {splat_word(x & 0x00FF00FFu), splat_word(x >> 8 & 0x00FF00FFu)}; }

HR_INLINE WordPart add_products(WordPart a, WordPart b) {
#if defined(__AVX512BW__)
  return (WordPart)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (WordPart)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
  const IntPart low = ((IntPart)(a << 16) >> 16) * ((IntPart)(b << 16) >> 16);
  return (WordPart)(low + ((IntPart)a >> 16) * ((IntPart)b >> 16));
#endif
}
HR_INLINE U16 dot_quads(const U16& sum, const Quads& x, const Quads& w) {
  U16 out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    out.part[i] =
        sum.part[i] + add_products(x.even.part[i], w.even.part[i]) + add_products(x.odd.part[i], w.odd.part[i]);
  }
  return out;
}
#endif

HR_INLINE F16 float_of_integers(const U16& x) {
  return map<F16>(
      [](WordPart a) __attribute__((always_inline)) { return __builtin_convertvector((IntPart)a, FloatPart); }, x);
}

HR_INLINE F16 load_int8(const int8_t* p) {
#if defined(__AVX512F__)
  __m128i bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  F16 out;
  out.part[0] = __builtin_convertvector((IntPart)_mm512_cvtepi8_epi32(bytes), FloatPart);
  return out;
#else
  F16 out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    SignedPart bytes;
    std::memcpy(&bytes, p + i * PART, sizeof bytes);
    out.part[i] = __builtin_convertvector(__builtin_convertvector(bytes, IntPart), FloatPart);
  }
  return out;
#endif
}

// Pairs of bfloat16, the even member low; exact, since an integer of eight bits has no bit below the upper sixteen.
HR_INLINE U16 dequantised_pairs(const int8_t* even, const int8_t* odd) {
  return as_words(load_int8(odd)) | shift_right<16>(as_words(load_int8(even)));
}

// RNE(x / scale) + 128 as bytes.
HR_INLINE void store_input_bytes(uint8_t* p, const F16& x, const F16& scale) {
  const U16 bits = as_words(x / scale + splat(ROUNDING_BIAS));
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) {
    const BytePart bytes = __builtin_convertvector(bits.part[i] + uint32_t{INPUT_OFFSET}, BytePart);
    std::memcpy(p + i * PART, &bytes, sizeof bytes);
  }
}

}  // namespace hr
