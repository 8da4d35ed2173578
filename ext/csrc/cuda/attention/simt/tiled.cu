// tiled_attention: scores of a 32 x 32 tile at a time, in shared memory; the textbook's blocking without the online
// softmax's rescaling. The keys pass by twice: once for each row's maximum and sum, once for the output.
//
//   block     256 threads (16 x 16) for 32 query rows of one (batch, head); a thread has 2 x 2 scores of a tile
//   shared    Q (once), K or V of 32 keys, the tile of weights; all as float32
//   pass 1    per tile: load K | barrier | scores, maximum and sum of each row over the tile's 16 threads | barrier
//   pass 2    per tile: load K | barrier | weights = exp(score - maximum) / sum to shared | barrier | load V | barrier
//             | O += weights V (2 rows, every 16th column a thread) | barrier
#include <cuda_runtime.h>

#include "../../numeric.cuh"
#include "../launch.h"
#include "simt.h"

namespace cuda_llm_ops::cuda::attention {
namespace {

constexpr int kTile = 32;
constexpr int kThreads = 256;
constexpr const char* kFamily = "tiled_attention";

template <typename T, int HeadDim>
struct Shared {
  float q[kTile][HeadDim + 1];
  float kv[kTile][HeadDim + 1];
  float weights[kTile][kTile + 1];
};

// Rows first .. first + 31 of a (rows, head_dim) matrix as float32; rows at or past `limit` become zeros.
template <typename T, int HeadDim>
__device__ void load(float (&to)[kTile][HeadDim + 1], const T* from, int64_t stride, int first, int limit,
                     int head_dim) {
  for (int row = threadIdx.x / 32; row < kTile; row += kThreads / 32) {
    const bool inside = first + row < limit;
    for (int column = threadIdx.x % 32; column < head_dim; column += 32) {
      to[row][column] = inside ? to_float(from[(first + row) * stride + column]) : 0.0f;
    }
  }
}

__device__ float base_of(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

template <typename T, int HeadDim>
__global__ void __launch_bounds__(kThreads) kernel(const __grid_constant__ AttentionArguments a) {
  extern __shared__ unsigned char bytes[];
  auto& shared = *reinterpret_cast<Shared<T, HeadDim>*>(bytes);
  const int tx = static_cast<int>(threadIdx.x) % 16;
  const int ty = static_cast<int>(threadIdx.x) / 16;
  const int row_tiles = (a.seq_q + kTile - 1) / kTile;
  const int pair = static_cast<int>(blockIdx.x) / row_tiles;
  const int first_row = (row_tiles - 1 - static_cast<int>(blockIdx.x) % row_tiles) * kTile;
  const int batch = pair / a.heads;
  const int head = pair % a.heads;
  const int kv_head = head / (a.heads / a.kv_heads);
  const T* q = static_cast<const T*>(a.q) + batch * a.q_stride.batch + head * a.q_stride.head;
  const T* k = static_cast<const T*>(a.k) + batch * a.k_stride.batch + kv_head * a.k_stride.head;
  const T* v = static_cast<const T*>(a.v) + batch * a.v_stride.batch + kv_head * a.v_stride.head;
  const int keys = a.causal ? min(a.seq_kv, first_row + kTile) : a.seq_kv;

  // This thread's 2 x 2 scores: rows ty and ty + 16 of the tile, keys tx and tx + 16. Keys that do not count are -inf.
  const auto scores = [&](int first_key, float (&s)[2][2]) {
    s[0][0] = s[0][1] = s[1][0] = s[1][1] = 0.0f;
    for (int d = 0; d < a.head_dim; ++d) {
      const float q0 = shared.q[ty][d], q1 = shared.q[ty + 16][d];
      const float k0 = shared.kv[tx][d], k1 = shared.kv[tx + 16][d];
      s[0][0] = fmaf(q0, k0, s[0][0]);
      s[0][1] = fmaf(q0, k1, s[0][1]);
      s[1][0] = fmaf(q1, k0, s[1][0]);
      s[1][1] = fmaf(q1, k1, s[1][1]);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = first_row + ty + 16 * i;
        const int key = first_key + tx + 16 * j;
        s[i][j] = key < a.seq_kv && (!a.causal || key <= row) ? s[i][j] * a.scale : -INFINITY;
      }
    }
  };

  load<T, HeadDim>(shared.q, q, a.q_stride.seq, first_row, a.seq_q, a.head_dim);
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};
  for (int first_key = 0; first_key < keys; first_key += kTile) {
    load<T, HeadDim>(shared.kv, k, a.k_stride.seq, first_key, a.seq_kv, a.head_dim);
    __syncthreads();
    float s[2][2];
    scores(first_key, s);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float top = fmaxf(maximum[i], fmaxf(s[i][0], s[i][1]));
      for (int lane = 8; lane > 0; lane /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, lane));
      float added = expf(s[i][0] - base_of(top)) + expf(s[i][1] - base_of(top));
      for (int lane = 8; lane > 0; lane /= 2) added += __shfl_xor_sync(0xffffffffu, added, lane);
      sum[i] = sum[i] * expf(maximum[i] - base_of(top)) + added;
      maximum[i] = top;
    }
    __syncthreads();
  }

  float o[2][HeadDim / 16] = {};
  for (int first_key = 0; first_key < keys; first_key += kTile) {
    load<T, HeadDim>(shared.kv, k, a.k_stride.seq, first_key, a.seq_kv, a.head_dim);
    __syncthreads();
    float s[2][2];
    scores(first_key, s);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float inverse = sum[i] == 0.0f ? 1.0f : 1.0f / sum[i];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        shared.weights[ty + 16 * i][tx + 16 * j] = expf(s[i][j] - base_of(maximum[i])) * inverse;
      }
    }
    __syncthreads();
    load<T, HeadDim>(shared.kv, v, a.v_stride.seq, first_key, a.seq_kv, a.head_dim);
    __syncthreads();
    for (int key = 0; key < kTile; ++key) {
      const float w0 = shared.weights[ty][key], w1 = shared.weights[ty + 16][key];
#pragma unroll
      for (int c = 0; c < HeadDim / 16; ++c) {
        if (tx + 16 * c < a.head_dim) {
          const float value = shared.kv[key][tx + 16 * c];
          o[0][c] = fmaf(w0, value, o[0][c]);
          o[1][c] = fmaf(w1, value, o[1][c]);
        }
      }
    }
    __syncthreads();
  }

  T* out = static_cast<T*>(a.out) + batch * a.out_stride.batch + head * a.out_stride.head;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + ty + 16 * i;
    if (row >= a.seq_q) continue;
#pragma unroll
    for (int c = 0; c < HeadDim / 16; ++c) {
      if (tx + 16 * c < a.head_dim) out[row * a.out_stride.seq + tx + 16 * c] = from_float<T>(o[i][c]);
    }
  }
}

template <typename T, int HeadDim>
Kernel instance(const char* name) {
  return {kFamily, name, reinterpret_cast<const void*>(&kernel<T, HeadDim>), kThreads,
          static_cast<int>(sizeof(Shared<T, HeadDim>))};
}

// By element type, then by head_dim up to 64, 128, 256.
const Kernel kKernels[3][3] = {
    {instance<float, 64>("tiled_float32_64"), instance<float, 128>("tiled_float32_128"),
     instance<float, 256>("tiled_float32_256")},
    {instance<__half, 64>("tiled_float16_64"), instance<__half, 128>("tiled_float16_128"),
     instance<__half, 256>("tiled_float16_256")},
    {instance<__nv_bfloat16, 64>("tiled_bfloat16_64"), instance<__nv_bfloat16, 128>("tiled_bfloat16_128"),
     instance<__nv_bfloat16, 256>("tiled_bfloat16_256")},
};

}  // namespace

const char* tiled(const AttentionArguments& arguments, cudaStream_t stream) {
  const int size = arguments.head_dim <= 64 ? 0 : arguments.head_dim <= 128 ? 1 : 2;
  const int row_tiles = (arguments.seq_q + kTile - 1) / kTile;
  void* whole[] = {const_cast<AttentionArguments*>(&arguments)};
  return launch(kKernels[static_cast<int>(arguments.type)][size],
                dim3(static_cast<unsigned>(arguments.batch * arguments.heads * row_tiles)), kThreads, whole, stream);
}

void tiled_attributes(std::vector<KernelAttributes>& into) {
  for (const auto& of_type : kKernels) {
    for (const Kernel& one : of_type) add_attributes(one, into);
  }
}

}  // namespace cuda_llm_ops::cuda::attention
