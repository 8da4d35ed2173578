// The fastest plan of each measured product, on one NVIDIA H200 (132 multiprocessors): cold operands, inside CUDA graphs,
// alternated with cuBLAS. The times are in docs/ladder-gemm-hopper.md. What is not here goes by the cost model.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda::sm90 {

enum class Family : int8_t { persistent, split, skinny };

struct Measured {
  int32_t m, n, k;
  bool a_mn_major, b_mn_major;  // stored k x m, k x n
  Family family;
  int16_t tile_m, tile_n, tile_k;
  int8_t split, cluster_m, cluster_n;
};

constexpr int measured_multiprocessors = 132;

constexpr Measured measured[] = {
    {256, 256, 256, false, false, Family::split, 64, 64, 64, 1, 1, 1},
    {512, 512, 512, false, false, Family::split, 64, 64, 64, 1, 1, 1},
    {768, 768, 768, false, false, Family::split, 64, 64, 64, 1, 1, 1},
    {1024, 1024, 1024, false, false, Family::split, 64, 64, 64, 1, 1, 1},
    {1536, 1536, 1536, false, false, Family::persistent, 128, 192, 64, 1, 1, 1},
    {2048, 2048, 2048, false, false, Family::persistent, 128, 256, 64, 1, 1, 1},
    {256, 256, 256, false, true, Family::split, 64, 64, 64, 1, 1, 1},
    {512, 512, 512, false, true, Family::split, 64, 64, 64, 1, 1, 1},
    {768, 768, 768, false, true, Family::split, 64, 64, 64, 1, 1, 1},
    {1024, 1024, 1024, false, true, Family::split, 64, 64, 64, 1, 1, 1},
    {1536, 1536, 1536, false, true, Family::persistent, 128, 192, 64, 1, 1, 1},
    {2048, 2048, 2048, false, true, Family::persistent, 128, 256, 64, 1, 1, 1},
    {3072, 3072, 3072, false, false, Family::persistent, 128, 192, 64, 1, 1, 1},
    {4096, 4096, 4096, false, false, Family::persistent, 128, 256, 64, 1, 1, 1},
    {8192, 8192, 8192, false, false, Family::persistent, 128, 192, 64, 1, 1, 1},
    {1, 4096, 4096, false, false, Family::skinny, 64, 8, 128, 2, 1, 1},
    {16, 4096, 4096, false, false, Family::skinny, 64, 16, 128, 2, 1, 1},
    {64, 4096, 4096, false, false, Family::split, 64, 64, 64, 2, 1, 1},
    {128, 4096, 4096, false, false, Family::split, 64, 64, 64, 2, 1, 1},
    {1, 28672, 4096, false, false, Family::skinny, 128, 8, 128, 3, 1, 1},
    {16, 28672, 4096, false, false, Family::skinny, 128, 16, 64, 1, 1, 1},
    {64, 28672, 4096, false, false, Family::persistent, 128, 256, 64, 1, 1, 1},
    {128, 28672, 4096, false, false, Family::persistent, 128, 256, 64, 1, 1, 1},
};

}  // namespace cuda_llm_ops::cuda::sm90
