// Attention's backward for any mask on the host: its thread blocks one after the other, each thread a fiber. A thread that
// comes to an operation of its warp, or to a barrier, leaves its part there and lets the others run.
// test_backward_device.py puts HOST_PTX in place of every header of ptx/.
#ifdef HOST_PTX
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef HOST_BACKWARD
#define HOST_BACKWARD
struct Thread {
  int x;
};
extern Thread threadIdx;
extern unsigned char* shared_memory;

using std::max;
using std::min;

// What every lane of the warp posts, `words` of them, by lane; until the next exchange but one.
const uint32_t (*exchange(const uint32_t* mine, int words))[8];
void barrier(int id, int threads);

inline float bits_to_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline uint32_t float_to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline float __int_as_float(int bits) { return bits_to_float(static_cast<uint32_t>(bits)); }
inline float __fmaf_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
inline float __shfl_xor_sync(unsigned, float value, int mask) {
  const uint32_t mine = float_to_bits(value);
  return bits_to_float(exchange(&mine, 1)[threadIdx.x % 32 ^ mask][0]);
}
#define __syncthreads() barrier(0, 0)

namespace cuda_llm_ops::ptx {
inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) - shared_memory);
}
inline int fresh_tid_x() { return threadIdx.x; }
inline float ex2(float x) { return std::exp2f(x); }
inline void bar_sync(uint32_t id, uint32_t threads) { barrier(static_cast<int>(id), static_cast<int>(threads)); }
template <typename Value>
Value load_at(uint32_t address) {
  Value value;
  std::memcpy(&value, shared_memory + address, sizeof value);
  return value;
}
inline int load_shared(uint32_t address) { return load_at<int>(address); }
inline float2 load_shared_pair(uint32_t address) { return load_at<float2>(address); }
inline uint4 load_shared_vector(uint32_t address) { return load_at<uint4>(address); }
inline void store_shared_vector(uint32_t address, uint4 value) { std::memcpy(shared_memory + address, &value, 16); }
inline void copy(uint32_t to, const void* from, int bytes, int whole) {
  std::memset(shared_memory + to, 0, whole);
  std::memcpy(shared_memory + to, from, bytes);
}
inline void cp_async_cg_16_unless(bool ignore, uint32_t to, const void* from) {
  if (to % 16 != 0 || (!ignore && reinterpret_cast<uintptr_t>(from) % 16 != 0)) throw "a copy that is not aligned";
  copy(to, from, ignore ? 0 : 16, 16);
}
inline void cp_async_ca_4(uint32_t to, const void* from, int bytes) { copy(to, from, bytes, 4); }
inline void cp_async_commit_group() {}
template <int Pending>
void cp_async_wait_group() {}

template <bool Transposed>
void load_matrices(uint32_t (&registers)[4], uint32_t address) {
  const int lane = threadIdx.x % 32, row = lane / 4, column = lane % 4 * 2;
  const auto* const addresses = exchange(&address, 1);
  for (int j = 0; j < 4; ++j) {
    const auto element = [&](int its_row, int its_column) {
      return load_at<uint16_t>(addresses[j * 8 + its_row][0] + its_column * 2);
    };
    const uint32_t low = Transposed ? element(column, row) : element(row, column);
    const uint32_t high = Transposed ? element(column + 1, row) : element(row, column + 1);
    registers[j] = low | high << 16;
  }
}
inline void ldmatrix_x4(uint32_t (&registers)[4], uint32_t address) { load_matrices<false>(registers, address); }
inline void ldmatrix_x4_trans(uint32_t (&registers)[4], uint32_t address) { load_matrices<true>(registers, address); }

template <typename T>
float half_of(uint32_t pair, int which) {
  const auto bits = static_cast<uint16_t>(pair >> 16 * which);
  T value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

template <typename T>
void mma_sync_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
  const auto* const all = exchange(mine, 6);
  const int lane = threadIdx.x % 32;
  for (int e = 0; e < 4; ++e) {
    const int row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
    for (int k = 0; k < 16; ++k) {
      const uint32_t left = all[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2];
      const uint32_t right = all[column * 4 + k % 8 / 2][4 + k / 8];
      d[e] += half_of<T>(left, k % 2) * half_of<T>(right, k % 2);
    }
  }
}
}  // namespace cuda_llm_ops::ptx
#endif
#else
#include <ucontext.h>

#include <functional>
#include <memory>
#include <vector>

#include "backward/mma/sizes.cuh"
#include "backward/rows.cuh"
#include "backward/simt/tiles.cuh"

Thread threadIdx;
unsigned char* shared_memory;

namespace {

constexpr int kMost = 256, kStack = 1 << 16;
ucontext_t scheduler, fibers[kMost];
std::vector<char> stacks(kMost* kStack);
bool done[kMost], at_barrier[kMost], backwards;
std::function<void()> body;
const char* fault;

void let_others_run() {
  const int mine = threadIdx.x;
  swapcontext(&fibers[mine], &scheduler);
  threadIdx.x = mine;
}

// Of a warp: what its lanes posted, alternating, so that a lane ahead overwrites nothing that another has yet to read.
struct Warp {
  uint32_t posted[2][32][8];
  int64_t exchanges[32];
};
Warp warps[kMost / 32];

struct Barrier {
  int arrived = 0;
  int64_t passed = 0;
};
Barrier barriers[16];
int block_threads;

void start() {
  try {
    body();
  } catch (const char* words) {
    fault = words;
  }
  done[threadIdx.x] = true;
  swapcontext(&fibers[threadIdx.x], &scheduler);
}

void run_block(int threads, const std::function<void()>& of_thread) {
  body = of_thread;
  block_threads = threads;
  for (Warp& warp : warps) std::fill(warp.exchanges, warp.exchanges + 32, 0);
  for (Barrier& one : barriers) one = {};
  for (int i = 0; i < threads; ++i) {
    done[i] = at_barrier[i] = false;
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = &stacks[i * kStack];
    fibers[i].uc_stack.ss_size = kStack;
    makecontext(&fibers[i], start, 0);
  }
  // A warp runs as far as a barrier lets it before the next begins, so what a barrier is missing for comes out wrong.
  const int warps_of_block = threads / 32;
  for (bool any = true; any && fault == nullptr; backwards = !backwards) {
    any = false;
    for (int w = 0; w < warps_of_block; ++w) {
      const int first = (backwards ? warps_of_block - 1 - w : w) * 32;
      for (bool runs = true; runs && fault == nullptr;) {
        runs = false;
        for (int i = first; i < first + 32; ++i) {
          if (done[i]) continue;
          any = true;
          threadIdx.x = i;
          swapcontext(&scheduler, &fibers[i]);
          runs |= !done[i] && !at_barrier[i];
        }
      }
    }
  }
}

using namespace cuda_llm_ops;
using namespace cuda_llm_ops::cuda;
using namespace cuda_llm_ops::cuda::backward;

int ceil_div(int a, int b) { return (a + b - 1) / b; }

template <typename Body>
void launch(int blocks, int threads, int shared_bytes, const Body& of_block) {
  const std::unique_ptr<unsigned char[]> memory(new unsigned char[shared_bytes + 128]);
  shared_memory = memory.get() + (128 - reinterpret_cast<uintptr_t>(memory.get()) % 128) % 128;
  for (int block = 0; block < blocks && fault == nullptr; ++block) {
    std::memset(shared_memory, 0xff, shared_bytes);  // NaN: what was not written is not read
    run_block(threads, [&] { of_block(block); });
  }
}

template <typename Size>
void run_mma(const GeneralParameters& p) {
  using Keys = typename Size::Keys;
  using Queries = typename Size::Queries;
  const int key_tiles = ceil_div(p.seq_kv, Keys::block_n), query_tiles = ceil_div(p.seq_q, Queries::block_m);
  launch(key_tiles * p.batch * p.kv_heads, Keys::threads, Keys::shared_bytes,
         [&](int block) { keys_body<Keys>(p, key_tiles, shared_memory, block); });
  launch(query_tiles * p.batch * p.heads, Queries::threads, Queries::shared_bytes,
         [&](int block) { queries_body<Queries>(p, query_tiles, shared_memory, block); });
}

template <typename C>
void run_simt(const GeneralParameters& p) {
  const int key_tiles = ceil_div(p.seq_kv, C::tile), query_tiles = ceil_div(p.seq_q, C::tile);
  const auto memory = [] { return reinterpret_cast<float*>(shared_memory); };
  launch(query_tiles * p.batch * p.heads, simt::threads, C::shared_bytes,
         [&](int block) { simt::sums_body<C>(p, query_tiles, memory(), block); });
  launch(key_tiles * p.batch * p.kv_heads, simt::threads, C::shared_bytes,
         [&](int block) { simt::keys_body<C>(p, key_tiles, memory(), block); });
  launch(query_tiles * p.batch * p.heads, simt::threads, C::shared_bytes,
         [&](int block) { simt::queries_body<C>(p, query_tiles, memory(), block); });
}

int device_shared = 163 * 1024;

// The first size that fits the head_dims and the device, as mma.cu has it.
template <typename Size>
bool run_if_fits(const GeneralParameters& p) {
  using Keys = typename Size::Keys;
  if (Keys::head_dim < p.head_dim || Keys::value_dim < p.value_dim ||
      std::max(Keys::shared_bytes, Size::Queries::shared_bytes) > device_shared)
    return false;
  run_mma<Size>(p);
  return true;
}

template <typename T>
void run_of(const GeneralParameters& p) {
  const bool fits = run_if_fits<Size64<T>>(p) || run_if_fits<Size96<T>>(p) || run_if_fits<Size128<T>>(p) ||
                    run_if_fits<Size192of128<T>>(p) || run_if_fits<Large192<T>>(p) || run_if_fits<Size192<T>>(p) ||
                    run_if_fits<Large256<T>>(p) || run_if_fits<Size256<T>>(p) || run_if_fits<Small128<T>>(p) ||
                    run_if_fits<Small192<T>>(p) || run_if_fits<Small256<T>>(p);
  if (!fits) fault = "no size fits";
}

template <typename T>
void run_rows(const RowParameters& p) {
  for (int64_t row = 0; row < p.rows; ++row) run_block(32, [&] { rows_body<T>(p, row, threadIdx.x); });
}

}  // namespace

const uint32_t (*exchange(const uint32_t* mine, int words))[8] {
  Warp& warp = warps[threadIdx.x / 32];
  const int lane = threadIdx.x % 32;
  const int64_t round = warp.exchanges[lane];
  std::copy(mine, mine + words, warp.posted[round % 2][lane]);
  warp.exchanges[lane] = round + 1;
  while (*std::min_element(warp.exchanges, warp.exchanges + 32) <= round) let_others_run();
  return warp.posted[round % 2];
}

void barrier(int id, int threads) {
  Barrier& one = barriers[id];
  const int64_t passed = one.passed;
  if (++one.arrived == (id == 0 ? block_threads : threads)) {
    one.arrived = 0;
    ++one.passed;
    return;
  }
  at_barrier[threadIdx.x] = true;
  while (one.passed == passed) let_others_run();
  at_barrier[threadIdx.x] = false;
}

// The gradients; nullptr, or what went wrong.
extern "C" const char* run(const BackwardArguments* arguments) {
  fault = nullptr;
  const BackwardArguments& a = *arguments;
  std::vector<float> rows(row_count(a) * row_floats(a), NAN);
  const GeneralParameters p = general_parameters(a, rows.data());
  const RowParameters r = row_parameters(a, rows.data());
  if (a.type == GradientType::float32) {
    run_rows<float>(r);
    if (p.head_dim <= 64)
      run_simt<simt::Config<64, 32>>(p);
    else if (p.head_dim <= 128)
      run_simt<simt::Config<128, 32>>(p);
    else
      run_simt<simt::Config<256, 16>>(p);
  } else if (a.type == GradientType::float16) {
    run_rows<__half>(r);
    run_of<__half>(p);
  } else {
    run_rows<__nv_bfloat16>(r);
    run_of<__nv_bfloat16>(p);
  }
  return fault;
}
extern "C" void shared_per_block(int bytes) { device_shared = bytes; }
extern "C" int bytes_of_arguments() { return sizeof(BackwardArguments); }
#endif
