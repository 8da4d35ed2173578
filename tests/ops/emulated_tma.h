// Tensor maps and launches for a host program that runs device code by emulated_block.h. The program defines launch().
#pragma once
#include "cuda/tensor_map.h"

namespace emulated {
using cuda_llm_ops::cuda::TensorMapArguments;
inline std::vector<TensorMapArguments> maps;

// Copies a box at some later time.
void tma(uint32_t shared, const CUtensorMap* map, uint32_t to_barrier, const int (&place)[5]) {
  int number;
  memcpy(&number, map, 4);
  TensorMapArguments m = maps[number];
  for (int dim = m.rank; dim < 5; ++dim) m.box[dim] = 1;
  const std::vector<int> first(place, place + 5);
  const auto asked = races::snapshot();
  void* const asked_at = races::here();
  if (shared % 1024 != 0) fail("a copy's place");
  pending.push_back([=] {
    uint32_t offset = 0;
    uint64_t i[5];
    for (i[4] = 0; i[4] < m.box[4]; ++i[4])
      for (i[3] = 0; i[3] < m.box[3]; ++i[3])
        for (i[2] = 0; i[2] < m.box[2]; ++i[2])
          for (i[1] = 0; i[1] < m.box[1]; ++i[1])
            for (i[0] = 0; i[0] < m.box[0]; ++i[0], offset += 2) {
              uint32_t to = shared + offset;
              to ^= (to >> 7 & 7) << 4;
              bool inside = true;
              const char* from = static_cast<const char*>(m.pointer);
              for (int dim = 0; dim < m.rank; ++dim) {
                const int64_t at = first[dim] + static_cast<int64_t>(i[dim]);
                inside = inside && at >= 0 && static_cast<uint64_t>(at) < m.size[dim];
                from += at * (dim == 0 ? 2 : static_cast<int64_t>(m.stride_bytes[dim]));
              }
              inside ? memcpy(arena + to, from, 2) : memset(arena + to, 0, 2);
            }
    Barrier& b = barrier(to_barrier);
    races::land(arena + shared, offset, asked, asked_at, to_barrier, b.coming);
    b.tx -= offset;
    settle(b);
  });
}
}  // namespace emulated

namespace cuda_llm_ops::cuda {
const char* encode_tensor_map(CUtensorMap* map, const TensorMapArguments& arguments) {
  if (!arguments.swizzle_128 || arguments.box[0] != 64) emulated::fail("a tensor map");
  const int number = static_cast<int>(emulated::maps.size());
  emulated::maps.push_back(arguments);
  memcpy(map, &number, 4);
  return nullptr;
}
}  // namespace cuda_llm_ops::cuda
