// The portable GEMM: blocked for the caches, vectorised for the machine it runs on, float32 inside.
//
// A task computes one block of rows x columns of the output. For every slice of kSliceK along k it packs the slice of
// a and of b into panels (kRows, kColumns wide, k outermost, float32 whatever the inputs' type, zeros behind the
// edges), multiplies panel by panel in registers and adds to a float32 block; at the end alpha, beta and c turn the
// block into the output. A task's panels and block stay in the second-level cache; tasks share nothing, so threads do
// not wait.
//
// The bodies are plain C++ with vector types; on x86-64 they are compiled three times (AVX-512, AVX2, baseline) and
// chosen by the processor at run time, because an extension is built for the oldest machine it may meet.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "../arithmetic.h"
#include "../kernels.h"
#include "compiler.h"
#include "scalar.h"

namespace cuda_llm_ops::cpu {
namespace {

constexpr int64_t kSliceK = 256;
constexpr int64_t kMaxRows = 480;
constexpr int64_t kMaxColumns = 1024;
constexpr int kTransposeK = 16;
constexpr size_t kAlignment = 64;  // bytes

// Register tile: `Rows` rows of `Vectors` vectors of `Lanes` floats.
template <int Rows_, int Vectors_, int Lanes_>
struct RegisterTile {
  static constexpr int Rows = Rows_, Vectors = Vectors_, Lanes = Lanes_;
  static constexpr int Columns = Vectors * Lanes;
};

struct Block {
  const GemmArguments* arguments;
  int64_t batch, row0, rows, column0, columns;
  float* packed_a;
  float* packed_b;
  float* sums;  // rows x pitch
  int64_t pitch;
};

// sums (Tile::Rows x Tile::Columns) = or += panel_a (k x Rows) transposed times panel_b (k x Columns).
#if defined(__GNUC__)
template <typename Tile>
CUDA_LLM_OPS_INLINE void multiply_panels(int64_t k, const float* panel_a, const float* panel_b, float* sums,
                                         int64_t pitch, bool add) {
  typedef float Vector __attribute__((vector_size(Tile::Lanes * sizeof(float))));
  Vector accumulators[Tile::Rows][Tile::Vectors];
  for (int i = 0; i < Tile::Rows; ++i) {
    for (int j = 0; j < Tile::Vectors; ++j) accumulators[i][j] = Vector{};
  }
  for (int64_t at = 0; at < k; ++at) {
    Vector b[Tile::Vectors];
    for (int j = 0; j < Tile::Vectors; ++j) {
      b[j] = *reinterpret_cast<const Vector*>(panel_b + at * Tile::Columns + j * Tile::Lanes);
    }
    for (int i = 0; i < Tile::Rows; ++i) {
      for (int j = 0; j < Tile::Vectors; ++j) accumulators[i][j] += b[j] * panel_a[at * Tile::Rows + i];
    }
  }
  for (int i = 0; i < Tile::Rows; ++i) {
    for (int j = 0; j < Tile::Vectors; ++j) {
      Vector* const target = reinterpret_cast<Vector*>(sums + i * pitch + j * Tile::Lanes);
      *target = add ? *target + accumulators[i][j] : accumulators[i][j];
    }
  }
}
#else
template <typename Tile>
inline void multiply_panels(int64_t k, const float* panel_a, const float* panel_b, float* sums, int64_t pitch,
                            bool add) {
  float accumulators[Tile::Rows][Tile::Columns] = {};
  for (int64_t at = 0; at < k; ++at) {
    for (int i = 0; i < Tile::Rows; ++i) {
      for (int j = 0; j < Tile::Columns; ++j) {
        accumulators[i][j] += panel_b[at * Tile::Columns + j] * panel_a[at * Tile::Rows + i];
      }
    }
  }
  for (int i = 0; i < Tile::Rows; ++i) {
    for (int j = 0; j < Tile::Columns; ++j) {
      float& target = sums[i * pitch + j];
      target = add ? target + accumulators[i][j] : accumulators[i][j];
    }
  }
}
#endif

// Packs `extent` lines (rows of a, columns of b) of `k` elements into panels of Width lines. Strides in elements.
template <typename T, int Width>
CUDA_LLM_OPS_INLINE void pack(const T* source, int64_t stride_line, int64_t stride_k, int64_t extent, int64_t k,
                              float* packed) {
  for (int64_t line0 = 0; line0 < extent; line0 += Width, packed += k * Width) {
    const int64_t lines = std::min<int64_t>(Width, extent - line0);
    const T* const first = source + line0 * stride_line;
    if (stride_line == 1 && lines == Width) {
      for (int64_t at = 0; at < k; ++at) {
        for (int i = 0; i < Width; ++i) packed[at * Width + i] = to_float(first[at * stride_k + i]);
      }
      continue;
    }
    int64_t done = 0;
    if (stride_k == 1 && lines == Width) {
      for (; done + kTransposeK <= k; done += kTransposeK) {
        float square[Width][kTransposeK];
        for (int i = 0; i < Width; ++i) {
          for (int t = 0; t < kTransposeK; ++t) square[i][t] = to_float(first[i * stride_line + done + t]);
        }
        for (int t = 0; t < kTransposeK; ++t) {
          for (int i = 0; i < Width; ++i) packed[(done + t) * Width + i] = square[i][t];
        }
      }
    }
    for (; done < k; ++done) {
      for (int64_t i = 0; i < lines; ++i) {
        packed[done * Width + i] = to_float(first[i * stride_line + done * stride_k]);
      }
      for (int64_t i = lines; i < Width; ++i) packed[done * Width + i] = 0.0f;
    }
  }
}

template <typename Out>
CUDA_LLM_OPS_INLINE void store_block(const Block& block) {
  const GemmArguments& arguments = *block.arguments;
  const float alpha = arguments.alpha, beta = arguments.beta;
  const Out* const c = static_cast<const Out*>(arguments.c);
  Out* const out = static_cast<Out*>(arguments.out) + block.batch * arguments.m * arguments.n;
  for (int64_t i = 0; i < block.rows; ++i) {
    const int64_t row = block.row0 + i;
    Out* const target = out + row * arguments.n + block.column0;
    const float* const sums = block.sums + i * block.pitch;
    if (c == nullptr) {
      for (int64_t j = 0; j < block.columns; ++j) target[j] = from_float<Out>(alpha * sums[j]);
      continue;
    }
    const Out* const added =
        c + block.batch * arguments.c_stride_batch + row * arguments.c_stride_m + block.column0 * arguments.c_stride_n;
    if (arguments.c_stride_n == 1) {
      for (int64_t j = 0; j < block.columns; ++j) {
        target[j] = from_float<Out>(alpha * sums[j] + beta * to_float(added[j]));
      }
    } else {
      for (int64_t j = 0; j < block.columns; ++j) {
        target[j] = from_float<Out>(alpha * sums[j] + beta * to_float(added[j * arguments.c_stride_n]));
      }
    }
  }
}

template <typename Tile, typename T, typename Out>
CUDA_LLM_OPS_INLINE void compute_block_body(const Block& block) {
  const GemmArguments& arguments = *block.arguments;
  const T* const a =
      static_cast<const T*>(arguments.a) + block.batch * arguments.a_stride_batch + block.row0 * arguments.a_stride_m;
  const T* const b = static_cast<const T*>(arguments.b) + block.batch * arguments.b_stride_batch +
                     block.column0 * arguments.b_stride_n;
  for (int64_t k0 = 0; k0 < arguments.k; k0 += kSliceK) {
    const int64_t k = std::min<int64_t>(kSliceK, arguments.k - k0);
    pack<T, Tile::Columns>(b + k0 * arguments.b_stride_k, arguments.b_stride_n, arguments.b_stride_k, block.columns, k,
                           block.packed_b);
    pack<T, Tile::Rows>(a + k0 * arguments.a_stride_k, arguments.a_stride_m, arguments.a_stride_k, block.rows, k,
                        block.packed_a);
    for (int64_t column = 0; column < block.columns; column += Tile::Columns) {
      for (int64_t row = 0; row < block.rows; row += Tile::Rows) {
        multiply_panels<Tile>(k, block.packed_a + row * k, block.packed_b + column * k,
                              block.sums + row * block.pitch + column, block.pitch, k0 > 0);
      }
    }
  }
  store_block<Out>(block);
}

// 24 (12, 8) accumulators of the 32 (16, 16) vector registers, the rest for a row of b and a broadcast of a.
using BaselineTile = RegisterTile<4, 2, 4>;
#if defined(CUDA_LLM_OPS_X86)
using Avx2Tile = RegisterTile<6, 2, 8>;
using Avx512Tile = RegisterTile<12, 2, 16>;

template <typename T, typename Out>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))) void compute_block_avx512(const Block& block) {
  compute_block_body<Avx512Tile, T, Out>(block);
}

template <typename T, typename Out>
__attribute__((target("avx2,fma"))) void compute_block_avx2(const Block& block) {
  compute_block_body<Avx2Tile, T, Out>(block);
}
#endif

template <typename T, typename Out>
void compute_block_baseline(const Block& block) {
  compute_block_body<BaselineTile, T, Out>(block);
}

struct Machine {
  int tile_rows, tile_columns, level;  // level: 2 AVX-512, 1 AVX2, 0 baseline
};

Machine this_machine() {
#if defined(CUDA_LLM_OPS_X86)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma")) {
    return {Avx512Tile::Rows, Avx512Tile::Columns, 2};
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {Avx2Tile::Rows, Avx2Tile::Columns, 1};
#endif
  return {BaselineTile::Rows, BaselineTile::Columns, 0};
}

template <typename T, typename Out>
void compute_block(const Machine& machine, const Block& block) {
#if defined(CUDA_LLM_OPS_X86)
  if (machine.level == 2) return compute_block_avx512<T, Out>(block);
  if (machine.level == 1) return compute_block_avx2<T, Out>(block);
#endif
  static_cast<void>(machine);
  compute_block_baseline<T, Out>(block);
}

// Memory of one thread, kept from call to call: fresh pages for every product would cost as much as a small product.
class Scratch {
 public:
  float* reserve(size_t floats) {
    if (floats > floats_) {
      memory_.reset(static_cast<float*>(::operator new(floats * sizeof(float), std::align_val_t{kAlignment})));
      floats_ = floats;
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(float* pointer) const { ::operator delete(pointer, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<float, Free> memory_;
  size_t floats_ = 0;
};

int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

struct Partition {
  int64_t rows, columns;  // of a task's block, multiples of the register tile
  int64_t row_blocks, column_blocks;
};

// The blocks that take the least time when `threads` threads share them: whole rounds of tasks, each with its
// arithmetic and its packing (an element packed costs about as much as kPackCost multiply-adds of one register tile
// column).
Partition partition(const GemmArguments& arguments, const Machine& machine, int64_t threads) {
  constexpr double kPackCost = 40.0;
  const int64_t fewest_rows = ceil_div(arguments.m, kMaxRows);
  const int64_t fewest_columns = ceil_div(arguments.n, kMaxColumns);
  Partition best{};
  double best_cost = 0.0;
  for (int64_t i = fewest_rows; i <= fewest_rows + threads; ++i) {
    for (int64_t j = fewest_columns; j <= fewest_columns + threads; ++j) {
      Partition trial{};
      trial.rows = round_up(ceil_div(arguments.m, i), machine.tile_rows);
      trial.columns = round_up(ceil_div(arguments.n, j), machine.tile_columns);
      trial.row_blocks = ceil_div(arguments.m, trial.rows);
      trial.column_blocks = ceil_div(arguments.n, trial.columns);
      const int64_t tasks = arguments.batch * trial.row_blocks * trial.column_blocks;
      const double rows = static_cast<double>(trial.rows), columns = static_cast<double>(trial.columns);
      const double cost =
          static_cast<double>(ceil_div(tasks, threads)) * (rows * columns + kPackCost * (rows + columns));
      if (best.rows == 0 || cost < best_cost) {
        best = trial;
        best_cost = cost;
      }
    }
  }
  return best;
}

template <typename T, typename Out>
void gemm_as(const GemmArguments& arguments, const ParallelFor& parallel) {
  static const Machine machine = this_machine();
  const int64_t threads = std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 64);
  const Partition blocks = partition(arguments, machine, threads);
  const int64_t tasks = arguments.batch * blocks.row_blocks * blocks.column_blocks;

  parallel(0, tasks, 1, [&](int64_t begin, int64_t end) {
    thread_local Scratch scratch;
    const int64_t slice = std::min<int64_t>(kSliceK, arguments.k);
    const int64_t a_floats = round_up(blocks.rows * slice, 16);
    const int64_t b_floats = round_up(blocks.columns * slice, 16);
    const int64_t pitch = round_up(blocks.columns, 16);
    Block block{};
    block.arguments = &arguments;
    block.packed_a = scratch.reserve(static_cast<size_t>(a_floats + b_floats + blocks.rows * pitch));
    block.packed_b = block.packed_a + a_floats;
    block.sums = block.packed_b + b_floats;
    block.pitch = pitch;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t column = task / blocks.row_blocks % blocks.column_blocks;
      block.batch = task / blocks.row_blocks / blocks.column_blocks;
      block.row0 = task % blocks.row_blocks * blocks.rows;
      block.rows = std::min<int64_t>(blocks.rows, arguments.m - block.row0);
      block.column0 = column * blocks.columns;
      block.columns = std::min<int64_t>(blocks.columns, arguments.n - block.column0);
      compute_block<T, Out>(machine, block);
    }
  });
}

}  // namespace

void gemm(const GemmArguments& arguments, const ParallelFor& parallel) {
  visit_scalar(arguments.in_type, [&](auto zero) {
    using T = decltype(zero);
    if (arguments.out_type == ScalarType::float32) {
      gemm_as<T, float>(arguments, parallel);
    } else {
      gemm_as<T, T>(arguments, parallel);
    }
  });
}

void tensor_core_gemm(const GemmArguments& arguments, const ParallelFor& parallel) { gemm(arguments, parallel); }

}  // namespace cuda_llm_ops::cpu
