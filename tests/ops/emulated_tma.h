// Tensor maps and launches for a host program that runs device code by emulated_block.h. The program defines launch().
#pragma once
#include "cuda/tensor_map.h"

namespace emulated {
using cuda_llm_ops::cuda::TensorMapArguments;
inline std::vector<TensorMapArguments> maps;

// Each element of a box: where it is in shared memory, where in the tensor, and whether the tensor has it.
template <typename Visit>
uint32_t visit_box(TensorMapArguments m, uint32_t shared, const int (&place)[5], Visit visit) {
  const int item = m.type == cuda_llm_ops::cuda::TensorMapType::bytes ? 1 : 2;
  for (int dim = m.rank; dim < 5; ++dim) m.box[dim] = 1;
  if (shared % 1024 != 0) fail("a copy's place");
  uint32_t offset = 0;
  uint64_t i[5];
  for (i[4] = 0; i[4] < m.box[4]; ++i[4])
    for (i[3] = 0; i[3] < m.box[3]; ++i[3])
      for (i[2] = 0; i[2] < m.box[2]; ++i[2])
        for (i[1] = 0; i[1] < m.box[1]; ++i[1])
          for (i[0] = 0; i[0] < m.box[0]; ++i[0], offset += item) {
            uint32_t at_shared = shared + offset;
            at_shared ^= (at_shared >> 7 & 7) << 4;
            bool inside = true;
            int64_t from = 0;
            for (int dim = 0; dim < m.rank; ++dim) {
              const int64_t at = place[dim] + static_cast<int64_t>(i[dim]);
              inside = inside && at >= 0 && static_cast<uint64_t>(at) < m.size[dim];
              from += at * (dim == 0 ? item : static_cast<int64_t>(m.stride_bytes[dim]));
            }
            visit(arena + at_shared, from, inside, item);
          }
  return offset;
}

TensorMapArguments described(const CUtensorMap* map) {
  int number;
  memcpy(&number, map, 4);
  return maps[number];
}

// Copies a box at some later time.
void tma(uint32_t shared, const CUtensorMap* map, uint32_t to_barrier, const int (&place)[5]) {
  const TensorMapArguments m = described(map);
  const auto asked = races::snapshot();
  void* const asked_at = races::here();
  if (shared % 1024 != 0) fail("a copy's place");
  pending.push_back([=] {
    const char* const from = static_cast<const char*>(m.pointer);
    const uint32_t bytes = visit_box(m, shared, place, [&](uint8_t* to, int64_t at, bool inside, int item) {
      inside ? memcpy(to, from + at, item) : memset(to, 0, item);
    });
    Barrier& b = barrier(to_barrier);
    races::land(arena + shared, bytes, asked, asked_at, to_barrier, b.coming);
    b.tx -= bytes;
    settle(b);
  });
}

// Reads shared memory when its group is waited for.
void tma_store(const CUtensorMap* map, uint32_t shared, const int (&place)[5]) {
  const TensorMapArguments m = described(map);
  cur->stores.back().push_back([=] {
    char* const to = static_cast<char*>(const_cast<void*>(m.pointer));
    visit_box(m, shared, place, [&](uint8_t* from, int64_t at, bool inside, int item) {
      if (inside) memcpy(to + at, from, item);
    });
  });
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
const char* encode_tensor_map(CUtensorMap* map, const TensorMapArguments& arguments) {
  const bool bytes = arguments.type == TensorMapType::bytes;
  if (!arguments.swizzle_128 || arguments.box[0] != (bytes ? 128u : 64u)) emulated::fail("a tensor map");
  const int number = static_cast<int>(emulated::maps.size());
  emulated::maps.push_back(arguments);
  memcpy(map, &number, 4);
  return nullptr;
}
}  // namespace cuda_llm_ops::cuda
