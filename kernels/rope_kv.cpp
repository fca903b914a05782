#include "native/rope_kv.h"

#include <algorithm>

#include "native/kv_tile.h"
#include "native/rms_norm.h"

namespace hr {
namespace {

constexpr int TILE_TOKENS = 2;
constexpr int MAX_HEAD_DIM = 256;

// Pairs are (f, f + D / 2); each product is rounded, then their difference or sum, then to the element's type.
template <class Element>
void rotate(const float* x, const float* cos, const float* sin, int head_dim, Element* out) {
  const int half = head_dim / 2;
  for (int f = 0; f < half; f += LANES) {
    const int n = half - f;
    const F16 low = load_n(x + f, n), high = load_n(x + half + f, n);
    const F16 c = load_n(cos + f, n), s = load_n(sin + f, n);
    store_as(out + f, low * c - high * s, n);
    store_as(out + half + f, high * c + low * s, n);
  }
}

// One element at a time: the other half of a 32-bit word of V belongs to a token another thread may be writing.
template <class Class>
void write_slot(const RopeKvArgs& args, int64_t token, int head, const typename Class::Element* key,
                const typename Class::Element* value) {
  const int T = args.pool->block_tokens, D = args.head_dim;
  const KvShape shape{args.layers, args.kv_heads, T, D};
  const int slot = args.positions[token] % T;
  auto* keys = kv_tile<Class>(args.pool->kv, shape, args.blocks[token], args.layer, 0, head);
  auto* values = kv_tile<Class>(args.pool->kv, shape, args.blocks[token], args.layer, 1, head);
  for (int d = 0; d < D; ++d) keys[key_offset<Class>(d, slot, T)] = key[d];
  for (int d = 0; d < D; ++d) values[value_offset<Class>(d, slot, D)] = value[d];
}

template <class Class>
void place_token(const RopeKvArgs& args, int64_t token) {
  using Element = typename Class::Element;
  const int Q = args.heads, H = args.kv_heads, D = args.head_dim;
  const float* x = args.qkv + token * (Q + 2 * H) * D;
  const float* cos = args.cos + int64_t{args.positions[token]} * (D / 2);
  const float* sin = args.sin + int64_t{args.positions[token]} * (D / 2);
  Element* q = static_cast<Element*>(args.q) + token * Q * D;
  float normed[MAX_HEAD_DIM];
  const auto head_of = [&](int head, const float* norm) {
    if (!norm) return x + head * D;
    rms_norm_row(x + head * D, norm, args.rms_eps, D, normed);
    return static_cast<const float*>(normed);
  };
  for (int head = 0; head < Q; ++head) rotate(head_of(head, args.q_norm), cos, sin, D, q + head * D);
  for (int head = 0; head < H; ++head) {
    Element key[MAX_HEAD_DIM], value[MAX_HEAD_DIM];
    rotate(head_of(Q + head, args.k_norm), cos, sin, D, key);
    for (int d = 0; d < D; d += LANES) store_as(value + d, load(x + (Q + H + head) * D + d), LANES);
    write_slot<Class>(args, token, head, key, value);
  }
}

}  // namespace

int64_t rope_kv_tiles(const RopeKvArgs& args) { return (args.tokens + TILE_TOKENS - 1) / TILE_TOKENS; }

void rope_kv_tile(const RopeKvArgs& args, int64_t tile) {
  const int64_t first = tile * TILE_TOKENS;
  const int64_t last = std::min<int64_t>(first + TILE_TOKENS, args.tokens);
  with_class(args.dtype, [&](auto kind) {
    for (int64_t token = first; token < last; ++token) place_token<decltype(kind)>(args, token);
  });
}

}  // namespace hr
