// The fastest plan of each measured product, on one NVIDIA H200 (132 multiprocessors): cold operands, inside CUDA
// graphs, alternated with cuBLAS. The times are in docs/ladder-gemm-hopper.md. Other products go by the cost model.
#pragma once

#include <cstdint>

namespace cuda_llm_ops::cuda::sm90 {

enum class KernelKind : int8_t {
  persistent,
  swapped,
  split_k,
  skinny,
  pingpong,
  pingpong_swapped,
  multicast,
  multicast_swapped
};

struct Measured {
  int32_t m, n, k;
  bool a_mn_major, b_mn_major;  // stored k x m, k x n
  KernelKind kind;
  int16_t tile_m, tile_n, tile_k;
  int8_t stages;
  int8_t split, cluster_m, cluster_n;
};

constexpr int kMeasuredMultiprocessors = 132;

constexpr Measured kMeasured[] = {
    {256, 256, 256, false, false, KernelKind::persistent, 64, 64, 64, 5, 1, 1, 1},
    {512, 512, 512, false, false, KernelKind::persistent, 64, 64, 64, 5, 1, 1, 1},
    {768, 768, 768, false, false, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {1024, 1024, 1024, false, false, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {1536, 1536, 1536, false, false, KernelKind::persistent, 128, 144, 64, 5, 1, 1, 1},
    {2048, 2048, 2048, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {3072, 3072, 3072, false, false, KernelKind::persistent, 192, 192, 64, 4, 1, 1, 1},
    {4096, 4096, 4096, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {6144, 6144, 6144, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {8192, 8192, 8192, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {16384, 16384, 16384, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {256, 256, 256, false, true, KernelKind::persistent, 64, 64, 64, 5, 1, 1, 1},
    {512, 512, 512, false, true, KernelKind::persistent, 64, 64, 64, 5, 1, 1, 1},
    {768, 768, 768, false, true, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {1023, 1023, 1023, false, true, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {1024, 1024, 1024, false, true, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {1536, 1536, 1536, false, true, KernelKind::swapped, 128, 144, 64, 5, 1, 1, 1},
    {2048, 2048, 2048, false, true, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {3072, 3072, 3072, false, true, KernelKind::persistent, 192, 192, 64, 4, 1, 1, 1},
    {4096, 4096, 4096, false, true, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {6144, 6144, 6144, false, true, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {8192, 8192, 8192, false, true, KernelKind::persistent, 128, 192, 64, 4, 1, 2, 1},
    {16384, 16384, 16384, false, true, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {1, 4096, 4096, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {4, 4096, 4096, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {16, 4096, 4096, false, false, KernelKind::skinny, 64, 16, 128, 5, 2, 1, 1},
    {32, 4096, 4096, false, false, KernelKind::split_k, 64, 64, 128, 7, 2, 1, 1},
    {64, 4096, 4096, false, false, KernelKind::split_k, 64, 64, 64, 7, 2, 1, 1},
    {128, 4096, 4096, false, false, KernelKind::split_k, 128, 64, 64, 9, 2, 1, 1},
    {512, 4096, 4096, false, false, KernelKind::persistent, 128, 128, 64, 6, 1, 1, 1},
    {2048, 4096, 4096, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {8192, 4096, 4096, false, false, KernelKind::pingpong_swapped, 128, 168, 64, 5, 1, 1, 1},
    {1, 6144, 4096, false, false, KernelKind::split_k, 64, 48, 128, 8, 1, 1, 1},
    {4, 6144, 4096, false, false, KernelKind::split_k, 64, 48, 128, 8, 1, 1, 1},
    {16, 6144, 4096, false, false, KernelKind::split_k, 64, 48, 128, 8, 1, 1, 1},
    {32, 6144, 4096, false, false, KernelKind::split_k, 64, 48, 128, 8, 1, 1, 1},
    {64, 6144, 4096, false, false, KernelKind::split_k, 64, 48, 128, 8, 1, 1, 1},
    {128, 6144, 4096, false, false, KernelKind::persistent, 64, 96, 128, 5, 1, 2, 1},
    {512, 6144, 4096, false, false, KernelKind::persistent, 128, 192, 64, 4, 1, 1, 1},
    {2048, 6144, 4096, false, false, KernelKind::persistent, 256, 128, 64, 4, 1, 1, 1},
    {8192, 6144, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {1, 4096, 14336, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {4, 4096, 14336, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {16, 4096, 14336, false, false, KernelKind::skinny, 64, 16, 128, 5, 2, 1, 1},
    {32, 4096, 14336, false, false, KernelKind::split_k, 64, 64, 128, 7, 2, 1, 1},
    {64, 4096, 14336, false, false, KernelKind::split_k, 64, 64, 128, 7, 2, 1, 1},
    {128, 4096, 14336, false, false, KernelKind::skinny, 64, 160, 64, 7, 2, 1, 1},
    {512, 4096, 14336, false, false, KernelKind::persistent, 128, 128, 64, 6, 1, 1, 1},
    {2048, 4096, 14336, false, false, KernelKind::persistent, 256, 128, 64, 4, 1, 2, 1},
    {8192, 4096, 14336, false, false, KernelKind::pingpong_swapped, 128, 168, 64, 5, 1, 1, 1},
    {1, 8192, 8192, false, false, KernelKind::split_k, 64, 64, 128, 7, 1, 1, 1},
    {4, 8192, 8192, false, false, KernelKind::skinny, 64, 16, 128, 5, 2, 1, 1},
    {16, 8192, 8192, false, false, KernelKind::skinny, 64, 16, 128, 5, 2, 1, 1},
    {32, 8192, 8192, false, false, KernelKind::split_k, 64, 64, 128, 7, 1, 1, 1},
    {64, 8192, 8192, false, false, KernelKind::split_k, 64, 64, 64, 7, 2, 1, 1},
    {128, 8192, 8192, false, false, KernelKind::persistent, 64, 128, 64, 8, 1, 2, 1},
    {512, 8192, 8192, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {2048, 8192, 8192, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {1, 28672, 4096, false, false, KernelKind::persistent, 64, 112, 64, 9, 1, 1, 1},
    {4, 28672, 4096, false, false, KernelKind::persistent, 64, 112, 64, 9, 1, 1, 1},
    {16, 28672, 4096, false, false, KernelKind::persistent, 64, 112, 64, 9, 1, 1, 1},
    {32, 28672, 4096, false, false, KernelKind::persistent, 64, 112, 64, 9, 1, 1, 1},
    {64, 28672, 4096, false, false, KernelKind::persistent, 64, 112, 64, 9, 1, 1, 2},
    {128, 28672, 4096, false, false, KernelKind::persistent, 128, 224, 64, 4, 1, 1, 2},
    {512, 28672, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {2048, 28672, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {8192, 28672, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {1, 8192, 28672, false, false, KernelKind::skinny, 64, 8, 128, 6, 1, 1, 1},
    {4, 8192, 28672, false, false, KernelKind::skinny, 64, 8, 128, 6, 1, 1, 1},
    {16, 8192, 28672, false, false, KernelKind::split_k, 64, 64, 128, 7, 1, 1, 1},
    {64, 8192, 28672, false, false, KernelKind::split_k, 64, 64, 128, 7, 1, 1, 1},
    {128, 8192, 28672, false, false, KernelKind::split_k, 128, 128, 64, 6, 2, 1, 1},
    {512, 8192, 28672, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 1},
    {2048, 8192, 28672, false, false, KernelKind::persistent, 128, 144, 64, 5, 1, 1, 1},
    {8192, 8192, 28672, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {1, 57344, 8192, false, false, KernelKind::skinny, 64, 8, 128, 6, 3, 1, 1},
    {4, 57344, 8192, false, false, KernelKind::split_k, 64, 112, 128, 5, 1, 1, 1},
    {16, 57344, 8192, false, false, KernelKind::split_k, 64, 112, 128, 5, 1, 1, 1},
    {64, 57344, 8192, false, false, KernelKind::split_k, 64, 112, 128, 5, 1, 1, 1},
    {128, 57344, 8192, false, false, KernelKind::persistent, 128, 224, 64, 4, 1, 1, 2},
    {512, 57344, 8192, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {2048, 57344, 8192, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {8192, 57344, 8192, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {1, 128256, 4096, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {4, 128256, 4096, false, false, KernelKind::skinny, 64, 8, 128, 6, 2, 1, 1},
    {16, 128256, 4096, false, false, KernelKind::skinny, 64, 16, 128, 5, 1, 1, 1},
    {64, 128256, 4096, false, false, KernelKind::persistent, 64, 96, 128, 5, 1, 1, 2},
    {128, 128256, 4096, false, false, KernelKind::persistent, 128, 256, 64, 4, 1, 1, 2},
    {512, 128256, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {2048, 128256, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 2},
    {8192, 128256, 4096, false, false, KernelKind::pingpong, 128, 176, 64, 5, 1, 1, 1},
    {333, 777, 1111, false, true, KernelKind::persistent, 128, 64, 64, 8, 1, 1, 1},
    {4095, 4097, 4099, false, true, KernelKind::persistent, 256, 128, 64, 4, 1, 2, 1},
};

}  // namespace cuda_llm_ops::cuda::sm90
