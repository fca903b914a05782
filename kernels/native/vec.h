// Sixteen float32 lanes on every instruction level: one AVX-512 register, two AVX ones, or four of the compiler's own.
//
// All levels give the same bits: fused multiply-adds are explicit, sums over lanes go down one fixed tree, and bfloat16
// rounding flushes denormals as the processor's own instructions do. Threads that compute hold a FloatMode.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define HR_INLINE inline __attribute__((always_inline))

namespace hr {

constexpr int LANES = 16;
#if defined(__AVX512F__)
constexpr int PART = 16;
#elif defined(__AVX2__)
constexpr int PART = 8;
#else
constexpr int PART = 4;
#endif
constexpr int PARTS = LANES / PART;

typedef float FloatPart __attribute__((vector_size(PART * 4)));
typedef int32_t IntPart __attribute__((vector_size(PART * 4)));
typedef uint32_t WordPart __attribute__((vector_size(PART * 4)));
typedef uint16_t HalfPart __attribute__((vector_size(PART * 2)));

struct F16 {
  FloatPart part[PARTS];
};
struct U16 {  // sixteen 32-bit words: ids, bits of floats, pairs of bfloat16 with the even member low
  WordPart part[PARTS];
};
struct M16 {  // sixteen truths: −1 or 0
  IntPart part[PARTS];
};

// Round to nearest, denormals flushed on the way in and out; the caller's mode comes back at the end of the scope.
class FloatMode {
 public:
#if defined(__x86_64__)
  FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x9FC0); }  // FTZ | all exceptions masked | DAZ
  ~FloatMode() { _mm_setcsr(saved_); }

 private:
  unsigned saved_;
#else
  FloatMode() = default;
  ~FloatMode() {}

 private:
#endif
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
};

template <class Out, class Op, class... In>
HR_INLINE Out map(Op op, const In&... in) {
  Out out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) out.part[i] = op(in.part[i]...);
  return out;
}

#define HR_BINARY(Out, In, name, op) \
  HR_INLINE Out name(const In& a, const In& b) { \
    return map<Out>([](auto x, auto y) __attribute__((always_inline)) { return x op y; }, a, b); \
  }
HR_BINARY(F16, F16, operator+, +)
HR_BINARY(F16, F16, operator-, -)
HR_BINARY(F16, F16, operator*, *)
HR_BINARY(F16, F16, operator/, /)
HR_BINARY(U16, U16, operator+, +)
HR_BINARY(U16, U16, operator&, &)
HR_BINARY(U16, U16, operator|, |)
HR_BINARY(M16, F16, operator<, <)
HR_BINARY(M16, F16, operator>, >)
HR_BINARY(M16, F16, operator>=, >=)
HR_BINARY(M16, F16, operator!=, !=)
HR_BINARY(M16, U16, operator<, <)
HR_BINARY(M16, U16, operator>=, >=)
HR_BINARY(M16, M16, operator&, &)
HR_BINARY(M16, M16, operator|, |)
#undef HR_BINARY

HR_INLINE F16 splat(float x) {
  F16 out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) out.part[i] = FloatPart{} + x;
  return out;
}
HR_INLINE U16 splat_word(uint32_t x) {
  U16 out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) out.part[i] = WordPart{} + x;
  return out;
}
HR_INLINE F16 zero() { return splat(0.0f); }

template <class Vector, class Scalar>
HR_INLINE Vector load_as(const Scalar* p) {
  static_assert(sizeof(Scalar) == 4);
  Vector out;
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) std::memcpy(&out.part[i], p + i * PART, sizeof out.part[i]);
  return out;
}
HR_INLINE F16 load(const float* p) { return load_as<F16>(p); }
HR_INLINE U16 load_words(const uint32_t* p) { return load_as<U16>(p); }

template <class Vector, class Scalar>
HR_INLINE void store(Scalar* p, const Vector& x) {
  static_assert(sizeof(Scalar) == 4);
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) std::memcpy(p + i * PART, &x.part[i], sizeof x.part[i]);
}

// The first n lanes from memory, `fill` elsewhere; and the first n lanes to memory.
HR_INLINE F16 load_n(const float* p, int n, float fill = 0.0f) {
  if (n >= LANES) return load(p);
  float lanes[LANES];
  for (int i = 0; i < LANES; ++i) lanes[i] = i < n ? p[i] : fill;
  return load(lanes);
}
HR_INLINE void store_n(float* p, const F16& x, int n) {
  if (n >= LANES) return store(p, x);
  float lanes[LANES];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

HR_INLINE F16 as_float(const U16& x) {
  return map<F16>([](WordPart a) __attribute__((always_inline)) { return (FloatPart)a; }, x);
}
HR_INLINE U16 as_words(const F16& x) {
  return map<U16>([](FloatPart a) __attribute__((always_inline)) { return (WordPart)a; }, x);
}
template <int N>
HR_INLINE U16 shift_left(const U16& x) {
  return map<U16>([](WordPart a) __attribute__((always_inline)) { return a << N; }, x);
}
template <int N>
HR_INLINE U16 shift_right(const U16& x) {
  return map<U16>([](WordPart a) __attribute__((always_inline)) { return a >> N; }, x);
}

template <class Vector>
HR_INLINE Vector select(const M16& where, const Vector& yes, const Vector& no) {
  return map<Vector>(
      [](IntPart m, auto a, auto b) __attribute__((always_inline)) { return m ? a : b; }, where, yes, no);
}
HR_INLINE bool any(const M16& x) {
  IntPart all{};
#pragma GCC unroll 4
  for (int i = 0; i < PARTS; ++i) all |= x.part[i];
  int32_t lanes[PART], seen = 0;
  std::memcpy(lanes, &all, sizeof lanes);
  for (int i = 0; i < PART; ++i) seen |= lanes[i];
  return seen != 0;
}

// a · b + c, rounded once.
HR_INLINE F16 fma(const F16& a, const F16& b, const F16& c) {
  return map<F16>(
      [](FloatPart x, FloatPart y, FloatPart z) __attribute__((always_inline)) {
#if defined(__AVX512F__)
        return (FloatPart)_mm512_fmadd_ps((__m512)x, (__m512)y, (__m512)z);
#elif defined(__AVX2__) && defined(__FMA__)
        return (FloatPart)_mm256_fmadd_ps((__m256)x, (__m256)y, (__m256)z);
#else
        for (int i = 0; i < PART; ++i) z[i] = std::fma(x[i], y[i], z[i]);
        return z;
#endif
      },
      a, b, c);
}

// The second operand where one is NaN: max(best, x) keeps a NaN of x.
HR_INLINE F16 max(const F16& a, const F16& b) {
  return map<F16>(
      [](FloatPart x, FloatPart y) __attribute__((always_inline)) {
#if defined(__AVX512F__)
        return (FloatPart)_mm512_maskz_max_ps(0xFFFF, (__m512)x, (__m512)y);  // unmasked, GCC 12 warns
#else
        return x > y ? x : y;
#endif
      },
      a, b);
}
HR_INLINE F16 min(const F16& a, const F16& b) {
  return map<F16>(
      [](FloatPart x, FloatPart y) __attribute__((always_inline)) {
#if defined(__AVX512F__)
        return (FloatPart)_mm512_maskz_min_ps(0xFFFF, (__m512)x, (__m512)y);
#else
        return x < y ? x : y;
#endif
      },
      a, b);
}

// Over all lanes, in the fixed tree: lane i with lane i + 8, then 4, 2, 1.
template <class Half, class Op, class Whole>
HR_INLINE Half fold_once(const Whole& x, Op op) {
  Half low, high;
  std::memcpy(&low, &x, sizeof low);
  std::memcpy(&high, reinterpret_cast<const char*>(&x) + sizeof low, sizeof high);
  return op(low, high);
}
template <class Op>
HR_INLINE float fold_lanes(const F16& x, Op op) {
  typedef float Eight __attribute__((vector_size(32)));
  typedef float Four __attribute__((vector_size(16)));
  typedef float Two __attribute__((vector_size(8)));
  const Two two = fold_once<Two>(fold_once<Four>(fold_once<Eight>(x, op), op), op);
  return op(two[0], two[1]);
}
HR_INLINE float sum_lanes(const F16& x) {
  return fold_lanes(x, [](auto a, auto b) __attribute__((always_inline)) { return a + b; });
}
HR_INLINE float max_lanes(const F16& x) {
  return fold_lanes(x, [](auto a, auto b) __attribute__((always_inline)) { return a > b ? a : b; });
}

HR_INLINE U16 lane_index() {
  constexpr uint32_t index[LANES] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return load_words(index);
}

}  // namespace hr
