#include "native/rope_kv.h"

#include <algorithm>

#include "native/kv_tile.h"
#include "native/panel.h"
#include "native/rms_norm.h"

namespace hr {
namespace {

constexpr int64_t FEW_TOKENS = 32;  // up to here a tile is of two, so that all threads have some; else of eight

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

// One kv head's keys or values of the block that a token's slot is in.
template <class Class>
typename Class::Element* tile_of(const RopeKvArgs& args, int64_t token, int values, int head) {
  const KvShape shape{args.layers, args.kv_heads, args.pool->block_tokens, args.head_dim};
  return kv_tile<Class>(args.pool->kv, shape, args.blocks[token], args.layer, values, head);
}
int slot_of(const RopeKvArgs& args, int64_t token) { return args.positions[token] % args.pool->block_tokens; }
const float* head_at(const RopeKvArgs& args, int64_t token, int head) {
  return args.qkv + (token * (args.heads + 2 * args.kv_heads) + head) * args.head_dim;
}

template <class Class>
void place_queries_and_keys(const RopeKvArgs& args, int64_t token) {
  using Element = typename Class::Element;
  const int Q = args.heads, H = args.kv_heads, D = args.head_dim, T = args.pool->block_tokens;
  const float* cos = args.cos + int64_t{args.positions[token]} * (D / 2);
  const float* sin = args.sin + int64_t{args.positions[token]} * (D / 2);
  float normed[MAX_HEAD_DIM];
  const auto head_of = [&](int head, const float* norm) {
    const float* x = head_at(args, token, head);
    if (!norm) return x;
    rms_norm_row(x, norm, args.rms_eps, D, normed);
    return static_cast<const float*>(normed);
  };
  Element* q = static_cast<Element*>(args.q) + token * Q * D;
  for (int head = 0; head < Q; ++head) rotate(head_of(head, args.q_norm), cos, sin, D, q + head * D);
  for (int head = 0; head < H; ++head) {
    Element key[MAX_HEAD_DIM];
    rotate(head_of(Q + head, args.k_norm), cos, sin, D, key);
    Element* keys = tile_of<Class>(args, token, 0, head) + key_offset<Class>(0, slot_of(args, token), T);
    for (int d = 0; d < D; d += Class::MEMBERS) std::memcpy(keys + d * T, key + d, sizeof(uint32_t));
  }
}

// One element at a time: the other half of a 32-bit word belongs to a token another thread may be writing.
template <class Class>
void place_values(const RopeKvArgs& args, int64_t token) {
  const int D = args.head_dim;
  for (int head = 0; head < args.kv_heads; ++head) {
    typename Class::Element value[MAX_HEAD_DIM];
    const float* x = head_at(args, token, args.heads + args.kv_heads + head);
    for (int d = 0; d < D; d += LANES) store_as(value + d, load(x + d), LANES);
    auto* values = tile_of<Class>(args, token, 1, head) + value_offset<Class>(0, slot_of(args, token), D);
    for (int d = 0; d < D; ++d) values[d * Class::MEMBERS] = value[d];
  }
}

// Whether this token and the next share their words.
template <class Class>
bool share_words(const RopeKvArgs& args, int64_t token) {
  return Class::MEMBERS == 2 && args.blocks[token] == args.blocks[token + 1] &&
         args.positions[token] + 1 == args.positions[token + 1] && slot_of(args, token) % 2 == 0;
}
void place_shared_values(const RopeKvArgs& args, int64_t token) {
  const int D = args.head_dim, at = args.heads + args.kv_heads;
  for (int head = 0; head < args.kv_heads; ++head) {
    Bf16 even[MAX_HEAD_DIM], odd[MAX_HEAD_DIM];
    for (int d = 0; d < D; d += LANES) {
      store_bf16(even + d, load(head_at(args, token, at + head) + d));
      store_bf16(odd + d, load(head_at(args, token + 1, at + head) + d));
    }
    Bf16* values = tile_of<Bfloat16>(args, token, 1, head) + value_offset<Bfloat16>(0, slot_of(args, token), D);
    for (int d = 0; d < D; ++d) {
      const uint32_t word = even[d] | static_cast<uint32_t>(odd[d]) << 16;
      std::memcpy(values + 2 * d, &word, sizeof word);
    }
  }
}

template <class Class>
void place_tokens(const RopeKvArgs& args, int64_t first, int64_t last) {
  for (int64_t token = first; token < last; ++token) place_queries_and_keys<Class>(args, token);
  for (int64_t token = first; token < last; ++token) {
    if (token + 1 < last && share_words<Class>(args, token)) {
      place_shared_values(args, token++);
    } else {
      place_values<Class>(args, token);
    }
  }
}

int64_t tile_tokens(const RopeKvArgs& args) { return args.tokens <= FEW_TOKENS ? 2 : 8; }

}  // namespace

int64_t rope_kv_tiles(const RopeKvArgs& args) { return ceil_div(args.tokens, tile_tokens(args)); }

void rope_kv_tile(const RopeKvArgs& args, int64_t tile) {
  const int64_t first = tile * tile_tokens(args);
  const int64_t last = std::min<int64_t>(first + tile_tokens(args), args.tokens);
  with_class(args.dtype, [&](auto kind) { place_tokens<decltype(kind)>(args, first, last); });
}

}  // namespace hr
