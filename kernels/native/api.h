// The C ABI of the CPU kernels: plain pointers and sizes, called through ctypes; no torch, no C++ types.
//
// A model is packed once and only read afterwards, so processes may map the same packed file. A step is one call: from
// token ids to drawn ids, for a ragged batch of decode tokens and chunks. All functions return 0, or a negative number
// that hr_error() puts into words. Axes: M tokens, R rows, K inputs, N outputs, Q query heads, H kv heads, D head dim.
#pragma once
#include <cstdint>

extern "C" {

// The rounding class of a weight and of what it multiplies. Int8: both quantised, exact integer sums; int8w: weights only,
// multiplied by bfloat16. KV of both is bfloat16.
enum HrDtype : int32_t { HR_FLOAT32 = 0, HR_BFLOAT16 = 1, HR_INT8 = 2, HR_INT8W = 3 };

// A weight matrix [N, K] as hr_pack_linear laid it out. `cuts` are the segment bounds 0 < … < K, both ends included; those of
// a bfloat16 weight are even, those of a quantised one multiples of 4. `data` lies at a multiple of 64 bytes, best of all in huge pages (madvise before the first
// touch, of the writer's mapping and of each reader's): with one token a step is bound by reading it, and small pages take
// a third longer.
struct HrLinear {
  const void* data;
  const float* bias;  // [N] or null
  const int32_t* cuts;
  int32_t segments;
  int32_t n, k;
  int32_t dtype;
};

struct HrLayer {
  const float* attention_norm;  // [hidden]
  const float* q_norm;          // [D] of every query head, before it turns, and k_norm of every key head; null: none
  const float* k_norm;
  int32_t is_windowed;          // 1: a token sees the last `window` positions of the model, 0: all
  HrLinear qkv;                 // N = (Q + 2H) D: queries, keys, values
  HrLinear o;                   // one segment per kv head
  const float* ffn_norm;
  HrLinear gate_up;             // N = 2F: gates, then ups
  HrLinear down;                // eight segments, cut at multiples of 32
};

struct HrModel {
  int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, positions;
  int32_t dtype;            // HrDtype of all weights
  int32_t window;           // positions that a token sees in a windowed layer, itself included
  float rms_eps, scale;     // scale of the attention scores
  const HrLinear* embedding;  // [vocab, hidden], packed; the head, too, where the two are tied
  const HrLayer* layer;       // [layers]
  const float* final_norm;
  const HrLinear* head;
  const float* cos;  // [positions, D / 2], from float64
  const float* sin;
};

// A KV pool [N, L, 2, H, tile], where a tile is T x D elements: float32 for that class of model, bfloat16 for all others.
// bfloat16: K as [D/2][T][2], V as [T/2][D][2]. float32: K as [D][T], V as [T][D].
struct HrPool {
  void* kv;
  uint32_t* fill_counts;  // [blocks]
  int32_t blocks, block_tokens;
};

// An id that may follow, and its log-probability by the raw logits.
struct HrTop {
  int32_t id;
  float logprob;
};

// How likely an id was to follow a token, by the raw logits.
struct HrScore {
  int32_t id;
  // Results.
  float logprob;
  int32_t rank;       // 1 + the number of ids with greater logits
  int32_t top_count;  // given, with the room for them
  HrTop* top;         // [top_count]: the likeliest ids, best first; equal ones by id
};

// What becomes of a row's logits before a token is drawn, in the order of the fields. Log-probabilities know nothing of it.
struct HrAdjust {
  const int32_t* seen;    // [seen_count] different ids
  const int32_t* counts;  // [seen_count] how often the answer has each; 0: the prompt alone
  float repetition, frequency, presence;  // 1, 0, 0: off
  int32_t seen_count;
  const int32_t* bias_ids;  // [bias_count] different ids
  const float* bias;
  const uint32_t* allowed;  // [⌈vocab / 32⌉] or null: bit id mod 32 of word id / 32 is 0 where an id is banned
  const uint32_t* mask;     // likewise, filled by somebody else while the step runs
  const int32_t* mask_ready;  // null: it is filled; else it is once this is not 0, which a thread waits for
  const int32_t* banned;
  int32_t bias_count, banned_count;
};

// One sequence in one step: tokens `start` … `start + tokens − 1` of M, whose KV goes to positions base ….
struct HrRow {
  int32_t start, tokens, base;
  int32_t draws;          // 1: draw a token from the logits of the last token
  const int32_t* table;   // block ids, at least ⌈(base + tokens) / T⌉
  // Sampling, read when `draws`.
  double temperature, min_p, top_p;  // min_p 0, top_p 1: off
  int32_t top_k;                     // 0: off
  uint32_t position;                 // index of the generated token
  uint64_t key;                      // (seed + choice) mod 2^64
  const HrAdjust* adjust;            // null: drawn from the logits as they are
  int32_t wants_logprob;
  // Results.
  int32_t token;    // −1: none was wanted, the row is not finite, or all ids are banned
  int32_t is_nan;   // hidden states or logits not finite: nothing published, nothing drawn
  float logprob;    // of the drawn token, raw logits
  // Further draws from the same logits, of which only the sampling fields are read: none where the row draws nothing.
  int32_t fork_count;
  HrRow* forks;
  HrTop* top;         // [top_count] results: the likeliest ids that are not banned, best first; equal ones by id
  int32_t top_count;  // needs wants_logprob
  int32_t top_is_raw;  // 1: the likeliest by the raw logits, banned or not
  // Of the row's first `score_count` tokens, whether it draws or not.
  int32_t score_count;
  HrScore* scores;
};

struct HrContext;  // a thread team and scratch memory; one per thread that steps

// `threads` counts the calling thread. Null when memory or threads cannot be had.
HrContext* hr_open(int32_t threads);
void hr_close(HrContext*);

// Bytes of a packed weight of this shape, class and these cuts (`data` is not read), and the packing itself from row-major
// source rows [n, k].
int64_t hr_packed_bytes(const HrLinear*);
enum HrSource : int32_t { HR_SOURCE_FLOAT32 = 0, HR_SOURCE_BFLOAT16 = 1, HR_SOURCE_FLOAT16 = 2 };
int32_t hr_pack_linear(HrContext*, const void* source, int32_t source_type, const HrLinear*, void* packed);

// Writes KV of all rows, publishes fill counts of the finite ones, draws. `logits` is null or [R, vocab], filled with the
// raw logits of each row's last token (then every row counts as drawing; nothing is drawn where `draws` is 0).
int32_t hr_step(HrContext*, const HrModel*, const HrPool*, const int32_t* ids, int32_t tokens, HrRow* rows,
                int32_t row_count, float* logits);

// What a step does, one after the other: the time of each is counted apart. Where a step has few tokens, a norm and the
// rounding of a product's input are part of the product.
enum HrOp : int32_t {
  HR_OP_PREPARE,  // from the call to the first tile: checks, plan, program
  HR_OP_EMBEDDING,
  HR_OP_NORM,
  HR_OP_QKV,
  HR_OP_ROPE_KV,
  HR_OP_ATTENTION,
  HR_OP_O,
  HR_OP_GATE_UP,
  HR_OP_SWIGLU,
  HR_OP_DOWN,
  HR_OP_HEAD,  // with the choice of the rows that draw
  HR_OP_SAMPLE,
  HR_OP_PUBLISH,  // fill counts
  HR_OPS
};

// Adds the wall nanoseconds of each op of every step from here on to ns [HR_OPS]; null ends it. A step that nobody watches
// pays one branch a phase.
void hr_watch(HrContext*, int64_t* ns);
const char* hr_op(int32_t op);  // its name; null beyond the last

// One product alone, for tests: out [tokens, N] = residual [tokens, N] (or null) + x [tokens, K] · weight + bias; x is rounded
// or quantised as the weight's class says first.
int32_t hr_linear(HrContext*, const HrLinear*, const float* x, int32_t tokens, const float* residual, float* out);

// Sizes and field offsets of the structs above, in order, as this library was compiled; at most `most` are written.
// Returns how many there are.
int32_t hr_layout(int32_t* values, int32_t most);

const char* hr_level(void);   // "avx512bf16", "avx512", "avx2", "portable"
int32_t hr_supported(void);   // 1 when this processor runs this level
const char* hr_error(int32_t code);

}  // extern "C"
