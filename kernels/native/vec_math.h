// Our own exp and log in sixteen lanes: the same bits on every processor and library.
#pragma once
#include "vec.h"

namespace hr {

// e^x within 2 ulp for x up to 88. exp(0) = 1, exp(−∞) = 0, NaN stays; 0 below the least normal number.
// x = n ln 2 + r, |r| ≤ ln 2 / 2; e^r = 1 + r + r² q(r), q fitted to the relative error.
HR_INLINE F16 exp_to_88(const F16& x) {
  const F16 magic = splat(12582912.0f);  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const F16 shifted = fma(x, splat(1.44269504f), magic);
  const F16 n = shifted - magic;
  const F16 r = fma(n, splat(-1.42860677e-6f), fma(n, splat(-0.693145752f), x));
  F16 q = splat(0.0013814219f);
  q = fma(q, r, splat(0.008368899f));
  q = fma(q, r, splat(0.041668408f));
  q = fma(q, r, splat(0.1666652f));
  q = fma(q, r, splat(0.49999994f));
  const F16 e_r = fma(r * r, q, r) + splat(1.0f);
  const F16 power = as_float(shift_left<23>(as_words(shifted)) + splat_word(0x3F800000u));
  return select(x < splat(-87.33654f), zero(), e_r * power);
}
// Likewise for all x: +∞ from 2^127.5 on.
HR_INLINE F16 exp(const F16& x) { return select(x > splat(88.37626f), splat(INFINITY), exp_to_88(x)); }

// ln x within 2 ulp, for normal x > 0. x = 2^e (1 + f), √½ ≤ 1 + f < √2; ln(1 + f) = f − f²/2 + f³ q(f).
HR_INLINE F16 log(const F16& x) {
  const U16 bits = as_words(x) + splat_word(0x3F800000u - 0x3F3504F3u);  // exponent and fraction part at √½
  const U16 exponent = shift_right<23>(bits);
  const F16 f = as_float((bits & splat_word(0x007FFFFFu)) + splat_word(0x3F3504F3u)) - splat(1.0f);
  // The biased exponent below 2^8 turned into a float by setting it under 2^23.
  const F16 e = as_float(exponent | splat_word(0x4B000000u)) - splat(8388608.0f + 127.0f);
  F16 q = splat(-0.07635588f);
  q = fma(q, f, splat(0.127633f));
  q = fma(q, f, splat(-0.13160595f));
  q = fma(q, f, splat(0.14201558f));
  q = fma(q, f, splat(-0.16623297f));
  q = fma(q, f, splat(0.20001233f));
  q = fma(q, f, splat(-0.25000823f));
  q = fma(q, f, splat(0.3333333f));
  const F16 square = f * f;
  F16 low = fma(square * f, q, e * splat(1.42860677e-6f));
  low = fma(square, splat(-0.5f), low);
  return fma(e, splat(0.693145752f), f + low);
}

}  // namespace hr
