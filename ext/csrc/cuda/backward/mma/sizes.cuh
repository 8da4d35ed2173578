// The tiles of keys.cuh and queries.cuh by head_dim.
//
// A thread block has 128 threads, two of them on a multiprocessor where shared memory allows it: while one waits at its
// barrier the other computes. From head_dim 192 on it has 256.
#pragma once

#include "keys.cuh"
#include "queries.cuh"

namespace cuda_llm_ops::cuda::backward {

// Keys: warps, m16 tiles of keys a warp, warps that share keys, queries of a tile. Queries: warps, m16 tiles of queries a
// warp, keys of a tile.
template <typename T>
struct Size64 {
  using Keys = KeysConfig<T, 64, 64, 4, 2, 1, 32>;
  using Queries = QueriesConfig<T, 64, 64, 4, 2, 64>;
};
template <typename T>
struct Size96 {
  using Keys = KeysConfig<T, 96, 96, 4, 2, 2, 64>;
  using Queries = QueriesConfig<T, 96, 96, 4, 2, 48>;
};
template <typename T>
struct Size128 {
  using Keys = KeysConfig<T, 128, 128, 4, 2, 2, 64, 1>;
  using Queries = QueriesConfig<T, 128, 128, 4, 2, 32>;
};
template <typename T>
struct Size192of128 {  // of q and k; of v
  using Keys = KeysConfig<T, 192, 128, 8, 1, 2, 64>;
  using Queries = QueriesConfig<T, 192, 128, 8, 1, 32>;
};
template <typename T>
struct Size192 {
  using Keys = KeysConfig<T, 192, 192, 8, 1, 2, 64, 1>;
  using Queries = QueriesConfig<T, 192, 192, 8, 1, 32>;
};
template <typename T>
struct Size256 {
  using Keys = KeysConfig<T, 256, 256, 8, 1, 2, 64, 1>;
  using Queries = QueriesConfig<T, 256, 256, 4, 1, 32>;
};

// For devices that give a thread block 227 KB of shared memory, as Hopper's do.
template <typename T>
struct Large192 {
  using Keys = KeysConfig<T, 192, 192, 8, 1, 2, 64>;
  using Queries = QueriesConfig<T, 192, 192, 8, 1, 64, 1>;
};
template <typename T>
struct Large256 {
  using Keys = KeysConfig<T, 256, 256, 8, 1, 2, 64>;
  using Queries = QueriesConfig<T, 256, 256, 8, 1, 32>;
};

// For devices that give a thread block 99 KB of shared memory.
template <typename T>
struct Small128 {
  using Keys = KeysConfig<T, 128, 128, 4, 1, 1, 64, 1>;
  using Queries = QueriesConfig<T, 128, 128, 4, 2, 32, 1>;
};
template <typename T>
struct Small192 {
  using Keys = KeysConfig<T, 192, 192, 8, 1, 2, 32, 1>;
  using Queries = QueriesConfig<T, 192, 192, 4, 1, 32, 1>;
};
template <typename T>
struct Small256 {
  using Keys = KeysConfig<T, 256, 256, 4, 1, 2, 32, 1>;
  using Queries = QueriesConfig<T, 256, 256, 4, 1, 16, 1>;
};
static_assert(Small128<char>::Keys::shared_bytes <= 99 * 1024 && Small128<char>::Queries::shared_bytes <= 99 * 1024);
static_assert(Small192<char>::Keys::shared_bytes <= 99 * 1024 && Small192<char>::Queries::shared_bytes <= 99 * 1024);
static_assert(Small256<char>::Keys::shared_bytes <= 99 * 1024 && Small256<char>::Queries::shared_bytes <= 99 * 1024);

}  // namespace cuda_llm_ops::cuda::backward
