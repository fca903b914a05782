// Lay a weight out in panels, and read rows of it back: the embedding of ids, where the table is the head's weight, too.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

struct PackArgs {
  const void* source;   // [n, k] row-major
  int32_t source_type;  // HrSource
  const HrLinear* weight;  // but for `data`; bfloat16 and integers are rounded to nearest even
  void* packed;            // packed_bytes(weight)
};

int64_t pack_tiles(const PackArgs&);
void pack_tile(const PackArgs&, int64_t tile);

struct EmbeddingArgs {
  const HrLinear* table;
  const int32_t* ids;  // [tokens], each in [0, N)
  int64_t tokens;
  float* out;  // [tokens, K]
};

int64_t embedding_tiles(const EmbeddingArgs&);
void embedding_tile(const EmbeddingArgs&, int64_t tile);

}  // namespace hr
