// Thread blocks on the host: every thread is a fiber. The instructions of warps, warpgroups and clusters do what PTX
// says, each thread when its turn comes, in a random order. TMA happens at a random time, wgmma when it is waited for.
// It stands for every header of ext/csrc/cuda/ptx/ in a copy of the sources. The host program defines what is launched.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <ucontext.h>
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>
#include "emulated_races.h"
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __global__
#define __global__
#undef __forceinline__
#define __forceinline__ inline
#define __CUDA_ARCH_FEAT_SM90_ALL 1
using std::max;
using std::min;
namespace emulated {
constexpr uint32_t kBlock = 256 * 1024;
struct Barrier {
  int count = 0, pending = 0;
  int64_t tx = 0;
  uint32_t phase = 0;
  races::Seen coming, seen;
};
struct Meet {
  int arrived = 0;
  uint32_t generation = 0;
  bool any = false, last_any = false;
  races::Seen coming, seen;
};
struct Warp {
  Meet meet;
  uint64_t exchange[32][8];
};
struct Block;
struct Product {
  int group;
  uint64_t a, b;
  uint32_t regs[4];
  bool rs, bf16, ta, tb;
  int n;
  float* d;
  bool scale;
  races::Snapshot asked;
  bool a_e5m2 = false, b_e5m2 = false, eight_bits = false;
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  dim3 tid;
  Block* block;
  Warp* warp;
  bool done = false;
  int lane, number;  // of a warp; of the cluster
  std::vector<Product> products;
  int group = 0;                                              // of products: how many were committed
  std::vector<std::vector<std::function<void()>>> stores{1};  // of TMA: a group each, the last one not committed
  uint32_t cluster_generation = 0;
};
struct Block {
  dim3 index;
  int rank;
  std::vector<Warp> warps;
  std::map<uint32_t, Barrier> barriers;
  uint32_t first_barrier = ~0u;
  std::map<int, Meet> named;
  int left = 0;
  int threads;
};
inline Fiber* cur;
inline ucontext_t scheduler;
inline uint8_t* arena;
inline dim3 grid_dim;
inline bool in_order = false;  // thread blocks begin in the order of their index, as blocks that wait for others need
inline int cluster_size;
inline std::vector<Block*> blocks;
inline Meet cluster_meet;
inline int cluster_threads;
inline std::mt19937 random(1);
inline std::vector<std::function<void()>> pending;
[[noreturn]] inline void fail(const char* what) {
  fprintf(stderr, "emulation: %s\n", what);
  abort();
}
inline void yield() { swapcontext(&cur->context, &scheduler); }
inline void all_came(Meet& m) {
  m.arrived = 0;
  m.seen = races::taken(m.coming);
  ++m.generation;
}
inline bool meet(Meet& m, int count, bool value = false, bool orders = true) {
  const uint32_t g = m.generation;
  if (orders) races::release(m.coming);
  m.any |= value;
  if (++m.arrived == count) {
    m.last_any = m.any;
    m.any = false;
    all_came(m);
  } else
    while (m.generation == g) yield();
  if (orders) races::acquire(m.seen);
  return m.last_any;
}
inline void warp_sync() { meet(cur->warp->meet, 32, false, false); }  // the lanes are together, and no more
inline uint8_t* shared_memory() { return arena + (cur->block->rank + 1) * kBlock; }
inline uint8_t* at(uint32_t address) { return arena + address; }
inline Barrier& barrier(uint32_t address) {
  const uint32_t rank = address / kBlock - 1;
  if (rank >= blocks.size()) fail("barrier address");
  auto& all = blocks[rank]->barriers;
  auto it = all.find(address);
  if (it == all.end()) fail("barrier not initialised");
  return it->second;
}
inline int number_of_barrier(uint32_t address) {  // counted from the block's first
  return static_cast<int>(address - blocks[address / kBlock - 1]->first_barrier) / 8;
}
inline void settle(Barrier& b) {
  if (b.pending < 0) fail("too many arrivals");
  if (b.pending == 0 && b.tx == 0) {
    b.phase ^= 1;
    b.pending = b.count;
    b.seen = races::taken(b.coming);
  }
}
void tma(uint32_t shared, const CUtensorMap* map, uint32_t barrier, const int (&place)[5]);
void tma_store(const CUtensorMap* map, uint32_t shared, const int (&place)[5]);
template <typename V>
V from_lane(V v, int lane) {
  uint64_t bits = 0;
  memcpy(&bits, &v, sizeof v);
  cur->warp->exchange[cur->lane][0] = bits;
  warp_sync();
  const uint64_t r = cur->warp->exchange[lane][0];
  warp_sync();
  V out;
  memcpy(&out, &r, sizeof out);
  return out;
}
inline bool vote(bool v, bool all) {
  cur->warp->exchange[cur->lane][0] = v;
  warp_sync();
  bool r = all;
  for (int l = 0; l < 32; ++l) r = all ? r && cur->warp->exchange[l][0] : r || cur->warp->exchange[l][0];
  warp_sync();
  return r;
}

// Runs `body` in every thread of the grid, a cluster after the other. Of a grid of several rows, clusters are of one row.
inline std::function<void()> body;
// Performs the stores of TMA that are waited for, as late as that is.
inline void store_all_but(size_t groups) {
  auto& all = cur->stores;
  while (all.size() > groups + 1) {
    for (const auto& store : all.front()) store();
    all.erase(all.begin());
  }
}
inline void entry() {
  body();
  store_all_but(0);
  cur->done = true;
  --cur->block->left;
  swapcontext(&cur->context, &scheduler);
}
inline void run(dim3 whole_grid, int block, int bytes, int cluster) {
  const int width = whole_grid.x, grid = width * whole_grid.y;
  if (bytes > 227 * 1024) fail("too much shared memory");
  if (width % cluster != 0) fail("a grid of no whole clusters");
  if (arena == nullptr) arena = static_cast<uint8_t*>(aligned_alloc(1 << 20, kBlock * 10));
  grid_dim = whole_grid;
  cluster_size = cluster;
  static std::vector<std::unique_ptr<Fiber>> pool;
  std::vector<int> order;
  for (int first = 0; first < grid; first += cluster) order.push_back(first);
  if (!in_order) std::shuffle(order.begin(), order.end(), random);
  for (const int first : order) {
    for (uint32_t i = 0; i < kBlock * (cluster + 1) / 4; ++i)
      reinterpret_cast<uint32_t*>(arena)[i] = 0x7fc07fc0;  // NaN
    blocks.clear();
    races::begin(arena, kBlock * (cluster + 1), block * cluster);
    cluster_meet = Meet();
    cluster_threads = block * cluster;
    std::vector<std::unique_ptr<Block>> own;
    std::vector<Fiber*> live;
    for (int rank = 0; rank < cluster; ++rank) {
      own.emplace_back(new Block);
      Block* const b = own.back().get();
      b->index = dim3((first + rank) % width, (first + rank) / width), b->rank = rank, b->warps.resize(block / 32),
      b->threads = b->left = block;
      blocks.push_back(b);
      for (int t = 0; t < block; ++t) {
        if (live.size() == pool.size()) {
          pool.emplace_back(new Fiber);
          pool.back()->stack.resize(64 * 1024);
        }
        Fiber* const f = pool[live.size()].get();
        f->tid = dim3(t, 0, 0), f->block = b, f->warp = &b->warps[t / 32], f->lane = t % 32, f->done = false,
        f->number = rank * block + t;
        f->products.clear(), f->group = 0, f->stores.assign(1, {});
        getcontext(&f->context);
        f->context.uc_stack.ss_sp = f->stack.data(), f->context.uc_stack.ss_size = f->stack.size();
        f->context.uc_link = nullptr;
        makecontext(&f->context, entry, 0);
        live.push_back(f);
      }
    }
    for (int idle = 0; !live.empty(); ++idle) {
      if (random() % 4 == 0 && !pending.empty()) {
        const size_t i = random() % pending.size();
        const auto copy = pending[i];
        pending.erase(pending.begin() + i);
        copy();
        idle = 0;
      }
      const size_t from = random() % live.size();
      for (size_t i = from; i < std::min(live.size(), from + 32); ++i) {
        if (live[i]->done) continue;
        cur = live[i];
        races::me = cur->number;
        swapcontext(&scheduler, &cur->context);
        races::me = -1;
      }
      live.erase(std::remove_if(live.begin(), live.end(), [](Fiber* f) { return f->done; }), live.end());
      if (idle > 1000000) fail("deadlock");
    }
    if (!pending.empty()) fail("a copy is on its way at the end");
  }
}
}  // namespace emulated
#define threadIdx (emulated::cur->tid)
#define blockIdx (emulated::cur->block->index)
#define gridDim (emulated::grid_dim)
inline void __syncwarp() { emulated::meet(emulated::cur->warp->meet, 32); }
inline void __syncthreads() { emulated::meet(emulated::cur->block->named[0], emulated::cur->block->threads); }
inline int __syncthreads_and(int v) {
  return !emulated::meet(emulated::cur->block->named[0], emulated::cur->block->threads, !v);
}
template <typename V>
V __shfl_sync(unsigned, V v, int from) {
  return emulated::from_lane(v, from & 31);
}
template <typename V>
V __shfl_xor_sync(unsigned, V v, int mask) {
  return emulated::from_lane(v, emulated::cur->lane ^ mask);
}
template <typename V>
V __shfl_up_sync(unsigned, V v, int by) {
  return emulated::from_lane(v, emulated::cur->lane >= by ? emulated::cur->lane - by : emulated::cur->lane);
}
inline unsigned __reduce_max_sync(unsigned, unsigned v) {
  for (int step = 16; step > 0; step /= 2) v = std::max(v, emulated::from_lane(v, emulated::cur->lane ^ step));
  return v;
}
inline unsigned __ballot_sync(unsigned, int v) {
  emulated::cur->warp->exchange[emulated::cur->lane][0] = v != 0;
  emulated::warp_sync();
  unsigned all = 0;
  for (int lane = 0; lane < 32; ++lane) all |= static_cast<unsigned>(emulated::cur->warp->exchange[lane][0]) << lane;
  emulated::warp_sync();
  return all;
}
inline unsigned __reduce_add_sync(unsigned, unsigned v) {
  emulated::cur->warp->exchange[emulated::cur->lane][0] = v;
  emulated::warp_sync();
  unsigned sum = 0;
  for (int lane = 0; lane < 32; ++lane) sum += static_cast<unsigned>(emulated::cur->warp->exchange[lane][0]);
  emulated::warp_sync();
  return sum;
}
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __any_sync(unsigned, int v) { return emulated::vote(v, false); }
inline int __all_sync(unsigned, int v) { return emulated::vote(v, true); }
template <typename V>
V __ldcg(const V* p) {
  return *p;
}
template <typename V>
V __ldg(const V* p) {
  return *p;
}
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
  const uint64_t v = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) r |= (uint32_t)(v >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint64_t)a * b >> 32; }
inline uint32_t __float_as_uint(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}
inline float __uint_as_float(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}
inline void* __cvta_shared_to_generic(uint32_t shared) { return emulated::at(shared); }
inline unsigned atomicMax(unsigned* p, unsigned v) {
  const unsigned r = *p;
  *p = std::max(r, v);
  return r;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))); }
inline float __fdividef(float a, float b) { return a / b; }
inline void __threadfence() {}
inline float __log2f(float a) { return log2f(a); }
namespace cuda_llm_ops::ptx {
inline uint32_t shared_address(const void* p) { return (uint32_t)((const uint8_t*)p - emulated::arena); }
inline void griddepcontrol_wait() {}
inline void griddepcontrol_launch_dependents() {}
constexpr uint64_t evict_normal = 0, evict_first = 1, evict_last = 2;
inline void prefetch_tensormap(const CUtensorMap*) {}
inline void prefetch_l2(const void* p) {
  volatile char c = *(const char*)p;
  (void)c;
}
inline bool elect_sync() {
  emulated::warp_sync();
  return emulated::cur->lane == 0;
}
inline void bar_sync(uint32_t id, uint32_t threads) {
  emulated::meet(emulated::cur->block->named[id], threads, false, races::follows(id));
}
inline void bar_arrive(uint32_t id, uint32_t threads) {
  emulated::Meet& m = emulated::cur->block->named[id];
  races::release(m.coming);
  if (++m.arrived == static_cast<int>(threads)) emulated::all_came(m);
}
inline bool bar_red_or(uint32_t id, uint32_t threads, bool v) {
  return emulated::meet(emulated::cur->block->named[id], threads, v, races::follows(id));
}
template <int>
void setmaxnreg_inc() {}
template <int>
void setmaxnreg_dec() {}
inline int fresh_tid_x() { return emulated::cur->tid.x; }
inline int opaque(int v) { return v; }
inline uint32_t cluster_ctarank() { return emulated::cur->block->rank; }
inline uint32_t cluster_nctarank() { return emulated::cluster_size; }
inline uint32_t clusters_in_grid() { return emulated::grid_dim.x / emulated::cluster_size; }
inline uint32_t mapa(uint32_t a, uint32_t rank) { return a % emulated::kBlock + (rank + 1) * emulated::kBlock; }
inline void barrier_cluster_arrive_relaxed() {
  emulated::Meet& m = emulated::cluster_meet;
  emulated::cur->cluster_generation = m.generation;
  if (++m.arrived == emulated::cluster_threads) emulated::all_came(m);
}
inline void barrier_cluster_arrive() {
  races::release(emulated::cluster_meet.coming);
  barrier_cluster_arrive_relaxed();
}
inline void barrier_cluster_wait() {
  while (emulated::cluster_meet.generation == emulated::cur->cluster_generation) emulated::yield();
  races::acquire(emulated::cluster_meet.seen);
}
template <typename V>
void st_async(uint32_t a, V v, uint32_t b) {
  auto& w = emulated::barrier(b);
  races::land(emulated::at(a), sizeof v, races::snapshot(), races::here(), b, w.coming);
  races::put(emulated::at(a), &v, sizeof v);
  w.tx -= sizeof v;
  emulated::settle(w);
}
template <typename V>
V ld_remote(uint32_t a) {
  emulated::yield();
  if (a % sizeof(V)) emulated::fail("alignment");
  if (emulated::blocks[a / emulated::kBlock - 1]->left == 0) emulated::fail("read of a block that has gone");
  V v;
  races::load(&v, emulated::at(a), sizeof v);
  return v;
}
inline float ld_cluster(uint32_t a) { return ld_remote<float>(a); }
inline float4 ld_cluster_vector(uint32_t a) { return ld_remote<float4>(a); }
inline uint32_t atomic_add_acq_rel(uint32_t* p, uint32_t v) {
  const uint32_t r = *p;
  *p += v;
  return r;
}
inline void red_release_add(uint32_t* p, uint32_t v) { *p += v; }
inline uint32_t load_acquire(const uint32_t* p) {
  emulated::yield();
  return *p;
}
inline void red_add_v4(float* p, float a, float b, float c, float d) {
  if (reinterpret_cast<uintptr_t>(p) % 16) emulated::fail("alignment");
  p[0] += a, p[1] += b, p[2] += c, p[3] += d;
}
template <typename V>
V load_from(uint32_t a) {
  if (a % sizeof(V)) emulated::fail("alignment");
  V v;
  races::load(&v, emulated::at(a), sizeof v);
  return v;
}
inline float2 load_shared_pair(uint32_t a) { return load_from<float2>(a); }
inline uint4 load_shared_vector(uint32_t a) { return load_from<uint4>(a); }
template <typename V>
void store_shared_vector(uint32_t a, V v) {
  if (a % 16) emulated::fail("alignment");
  races::store(emulated::at(a), &v, 16);
}
inline float ld_shared(uint32_t a) { return load_from<float>(a); }
template <typename V>
void store_to(uint32_t a, V v) {
  if (a % sizeof v) emulated::fail("alignment");
  races::store(emulated::at(a), &v, sizeof v);
}
inline void st_shared(uint32_t a, float x) { store_to(a, x); }
inline void st_shared_v2(uint32_t a, float x, float y) { store_to(a, make_float2(x, y)); }
inline void mbarrier_init(uint32_t a, uint32_t n) {
  if (a % 8) emulated::fail("alignment");
  emulated::Block& block = *emulated::cur->block;
  block.barriers[a] = {(int)n, (int)n, 0, 0};
  block.first_barrier = std::min(block.first_barrier, a);
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(uint32_t a) {
  auto& b = emulated::barrier(a);
  if (races::arrives(emulated::number_of_barrier(a))) races::release(b.coming);
  --b.pending;
  emulated::settle(b);
  if (emulated::random() % 4 == 0) emulated::yield();
}
inline void mbarrier_arrive_cluster(uint32_t a, uint32_t rank) {
  if (emulated::blocks[rank]->left == 0) emulated::fail("arrival at a block that has gone");
  mbarrier_arrive(mapa(a, rank));
}
inline void mbarrier_arrive_remote(uint32_t a) {
  if (emulated::blocks[a / emulated::kBlock - 1]->left == 0) emulated::fail("arrival at a block that has gone");
  mbarrier_arrive(a);
}
inline void bulk_copy_to_cluster(uint32_t to, uint32_t from, uint32_t bytes, uint32_t to_barrier) {
  if ((to | from | bytes) % 16) emulated::fail("alignment");
  const auto asked = races::snapshot();
  void* const place = races::here();
  emulated::pending.push_back([=] {
    if (emulated::blocks[to / emulated::kBlock - 1]->left == 0) emulated::fail("copy to a block that has gone");
    memcpy(emulated::at(to), emulated::at(from), bytes);
    emulated::Barrier& b = emulated::barrier(to_barrier);
    races::send(emulated::at(from), bytes, asked, place, to_barrier, b.coming);
    races::land(emulated::at(to), bytes, asked, place, to_barrier, b.coming);
    b.tx -= bytes;
    emulated::settle(b);
  });
}
inline void mbarrier_arrive_expect_tx(uint32_t a, uint32_t bytes) {
  auto& b = emulated::barrier(a);
  races::release(b.coming);
  b.tx += bytes;
  --b.pending;
  emulated::settle(b);
}
inline void mbarrier_wait(uint32_t a, uint32_t parity) {
  while (emulated::barrier(a).phase == parity) emulated::yield();
  if (races::waits(emulated::number_of_barrier(a))) races::acquire(emulated::barrier(a).seen);
}
inline void mbarrier_wait_cluster(uint32_t a, uint32_t parity) { mbarrier_wait(a, parity); }
inline void tma_load_5d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, int u, int v,
                        uint64_t) {
  emulated::tma(shared, map, barrier, {x, y, z, u, v});
}
inline void tma_load_4d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, int u,
                        uint64_t) {
  emulated::tma(shared, map, barrier, {x, y, z, u, 0});
}
inline void tma_load_3d(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, uint64_t) {
  emulated::tma(shared, map, barrier, {x, y, z, 0, 0});
}
inline void tma_load_3d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y, int z,
                                  uint16_t ranks, uint64_t) {
  for (int rank = 0; rank < emulated::cluster_size; ++rank) {
    if (ranks >> rank & 1) emulated::tma(mapa(shared, rank), map, mapa(barrier, rank), {x, y, z, 0, 0});
  }
}
inline void tma_load_4d_multicast(uint32_t shared, const CUtensorMap* map, uint32_t barrier, int x, int y, int z, int u,
                                  uint16_t ranks, uint64_t) {
  for (int rank = 0; rank < emulated::cluster_size; ++rank) {
    if (ranks >> rank & 1) emulated::tma(mapa(shared, rank), map, mapa(barrier, rank), {x, y, z, u, 0});
  }
}
inline void tma_store_3d(const CUtensorMap* map, uint32_t shared, int x, int y, int z) {
  emulated::tma_store(map, shared, {x, y, z, 0, 0});
}
inline void bulk_add(float* to, uint32_t from, uint32_t bytes) {
  if ((reinterpret_cast<uintptr_t>(to) | from | bytes) % 16) emulated::fail("alignment");
  const auto asked = races::snapshot();
  emulated::cur->stores.back().push_back([=] {
    std::vector<float> read(bytes / 4);
    races::load_async(read.data(), emulated::at(from), bytes, asked);
    for (size_t i = 0; i < read.size(); ++i) to[i] += read[i];
  });
}
inline void bulk_commit_group() { emulated::cur->stores.emplace_back(); }
template <int Pending>
void bulk_wait_group_read() {
  emulated::store_all_but(Pending);
}
template <int Pending>
void bulk_wait_group() {
  emulated::store_all_but(Pending);
}
inline void bulk_load(uint32_t shared, const void* from, uint32_t bytes, uint32_t to_barrier) {
  if ((reinterpret_cast<uintptr_t>(from) | shared | bytes) % 16) emulated::fail("alignment");
  const auto asked = races::snapshot();
  void* const place = races::here();
  emulated::pending.push_back([=] {
    memcpy(emulated::at(shared), from, bytes);
    emulated::Barrier& b = emulated::barrier(to_barrier);
    races::land(emulated::at(shared), bytes, asked, place, to_barrier, b.coming);
    b.tx -= bytes;
    emulated::settle(b);
  });
}
inline void cp_async_ca_4(uint32_t shared, const void* from, int bytes) {
  uint8_t all[4] = {};
  memcpy(all, from, bytes);
  races::store(emulated::at(shared), all, 4);
}
inline void cp_async_cg_16(uint32_t shared, const void* from, int bytes) {
  uint8_t all[16] = {};
  memcpy(all, from, bytes);
  races::store(emulated::at(shared), all, 16);
}
inline void cp_async_mbarrier_arrive_noinc(uint32_t a) {
  auto& b = emulated::barrier(a);
  races::release(b.coming);
  --b.pending;
  emulated::settle(b);
}
inline void cp_async_commit_group() {}
template <int>
void cp_async_wait_group() {}
inline void fence_proxy_async_shared() { races::fence(); }
inline float ex2(float x) { return exp2f(x); }
inline float max_nan(float a, float b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
inline uint32_t max3_s16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t both = 0;
  for (int at = 0; at < 32; at += 16) {
    const auto half = [at](uint32_t word) { return static_cast<int16_t>(word >> at); };
    both |= static_cast<uint32_t>(static_cast<uint16_t>(std::max({half(a), half(b), half(c)}))) << at;
  }
  return both;
}
inline float rcp(float x) { return x > 0x1p126f ? 0.0f : 1.0f / x; }
template <typename T>
uint32_t cvt_rn_x2(float low, float high) {
  uint16_t a, b;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const auto l = __float2bfloat16_rn(low), h = __float2bfloat16_rn(high);
    memcpy(&a, &l, 2);
    memcpy(&b, &h, 2);
  } else {
    const auto l = __float2half_rn(low), h = __float2half_rn(high);
    memcpy(&a, &l, 2);
    memcpy(&b, &h, 2);
  }
  return a | (uint32_t)b << 16;
}
inline void cvt_rn_f16x2_e4m3(uint32_t& lower, uint32_t& upper, uint32_t four) {
  uint16_t h[4];
  for (int i = 0; i < 4; ++i) {
    __nv_fp8_e4m3 f;
    f.__x = four >> 8 * i;
    const __half w = __float2half_rn((float)f);
    memcpy(&h[i], &w, 2);
  }
  lower = h[0] | (uint32_t)h[1] << 16, upper = h[2] | (uint32_t)h[3] << 16;
}
inline void gather(uint32_t (&r)[4], uint32_t address, bool trans) {
  if (address % 16) emulated::fail("alignment");
  auto& w = *emulated::cur->warp;
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4;
  w.exchange[lane][0] = address;
  emulated::warp_sync();
  for (int j = 0; j < 4; ++j) {
    if (!trans)
      races::load(&r[j], emulated::at((uint32_t)w.exchange[8 * j + g][0] + t * 4), 4);
    else {
      uint16_t x, y;
      races::load(&x, emulated::at((uint32_t)w.exchange[8 * j + 2 * t][0] + g * 2), 2);
      races::load(&y, emulated::at((uint32_t)w.exchange[8 * j + 2 * t + 1][0] + g * 2), 2);
      r[j] = x | (uint32_t)y << 16;
    }
  }
  emulated::warp_sync();
}
inline void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) { gather(r, address, false); }
inline void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) { gather(r, address, true); }
inline void scatter(uint32_t address, const uint32_t (&r)[4], bool trans) {
  if (address % 16) emulated::fail("alignment");
  auto& w = *emulated::cur->warp;
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4;
  w.exchange[lane][0] = address;
  emulated::warp_sync();
  for (int j = 0; j < 4; ++j)
    for (int h = 0; h < 2; ++h) {
      const uint16_t x = r[j] >> 16 * h;
      const int row = trans ? 2 * t + h : g, column = trans ? g : 2 * t + h;
      races::store(emulated::at((uint32_t)w.exchange[8 * j + row][0] + column * 2), &x, 2);
    }
  emulated::warp_sync();
}
inline void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  scatter(address, {r0, r1, r2, r3}, false);
}
inline void stmatrix_x4_trans(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  scatter(address, {r0, r1, r2, r3}, true);
}
inline uint32_t movmatrix_trans(uint32_t v) {
  auto& w = *emulated::cur->warp;
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4;
  w.exchange[lane][0] = v;
  emulated::warp_sync();
  const uint32_t x = w.exchange[4 * (2 * t) + g / 2][0] >> 16 * (g % 2) & 0xffff,
                 y = w.exchange[4 * (2 * t + 1) + g / 2][0] >> 16 * (g % 2) & 0xffff;
  emulated::warp_sync();
  return x | y << 16;
}
inline float number(uint16_t bits, bool bf16) {
  if (bf16) {
    __nv_bfloat16 t;
    memcpy(&t, &bits, 2);
    return __bfloat162float(t);
  }
  __half t;
  memcpy(&t, &bits, 2);
  return __half2float(t);
}
template <typename T>
void mma_sync_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  constexpr bool bf = std::is_same_v<T, __nv_bfloat16>;
  auto& w = *emulated::cur->warp;
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) w.exchange[lane][i] = a[i];
  w.exchange[lane][4] = b0, w.exchange[lane][5] = b1;
  emulated::warp_sync();
  for (int e = 0; e < 4; ++e) {
    const int row = g + 8 * (e / 2), col = 2 * t + e % 2;
    double sum = d[e];
    for (int k = 0; k < 16; ++k) {
      const int from = 4 * (row % 8) + k % 8 / 2, reg = row / 8 + 2 * (k / 8), bl = 4 * col + k % 8 / 2;
      sum += (double)number(w.exchange[from][reg] >> 16 * (k % 2), bf) *
             number(w.exchange[bl][4 + k / 8] >> 16 * (k % 2), bf);
    }
    d[e] = (float)sum;
  }
  emulated::warp_sync();
}
// wgmma
inline void wgmma_fence() {}
inline void wgmma_commit_group() { ++emulated::cur->group; }
template <typename V>
void wgmma_fence_operand(V&) {}
inline uint64_t matrix_descriptor(uint32_t shared, uint32_t leading_bytes, uint32_t stride_bytes) {
  return (uint64_t)((shared & 0x3FFFF) >> 4) | (uint64_t)(leading_bytes >> 4) << 16 |
         (uint64_t)(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}
inline uint64_t k_major_descriptor(uint32_t shared) { return matrix_descriptor(shared, 16, 1024); }
inline uint64_t mn_major_descriptor(uint32_t shared, uint32_t rows_k) {
  return matrix_descriptor(shared, rows_k * 128, 1024);
}
inline float element(uint64_t desc, bool mn_major, int mn, int k, bool bf16, const races::Snapshot& asked,
                     bool counts) {
  const uint32_t start = (desc & 0x3fff) << 4, lead = (desc >> 16 & 0x3fff) << 4, stride = (desc >> 32 & 0x3fff) << 4;
  uint32_t a = mn_major ? start + mn / 64 * lead + k / 8 * stride + k % 8 * 128 + mn % 64 * 2
                        : start + mn / 8 * stride + mn % 8 * 128 + k * 2;
  a ^= (a >> 7 & 7) << 4;
  uint16_t bits;
  const int first_of_warp = emulated::cur->number - emulated::cur->lane;
  races::load_for_product(&bits, emulated::shared_memory() + a, 2, asked, first_of_warp, counts);
  return number(bits, bf16);
}
template <typename T>
inline constexpr bool is_bfloat16 = std::is_same_v<T, __nv_bfloat16>;
inline void bulk_prefetch(const void*, uint32_t) {}
struct E4m3;
struct E5m2;
template <typename T>
inline constexpr bool is_e5m2 = std::is_same_v<T, E5m2>;
// 32 numbers of a row.
inline void numbers_8(float (&into)[32], uint64_t desc, int mn, bool e5m2, const races::Snapshot& asked) {
  static const auto table = [] {
    std::vector<float> all(512);
    for (int i = 0; i < 512; ++i) {
      __nv_fp8_e4m3 x;
      __nv_fp8_e5m2 y;
      x.__x = y.__x = static_cast<uint8_t>(i);
      all[i] = i < 256 ? static_cast<float>(x) : static_cast<float>(y);
    }
    return all;
  }();
  const uint32_t start = (desc & 0x3fff) << 4, stride = (desc >> 32 & 0x3fff) << 4;
  for (int k = 0; k < 32; k += 16) {
    uint32_t a = start + mn / 8 * stride + mn % 8 * 128 + k;
    a ^= (a >> 7 & 7) << 4;
    uint8_t bytes[16];
    races::load_async(bytes, emulated::shared_memory() + a, 16, asked);
    for (int i = 0; i < 16; ++i) into[k + i] = table[bytes[i] + 256 * e5m2];
  }
}
// The sums of a thread, of 32 products each.
inline void perform_8(const emulated::Product& p) {
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4, of_group = emulated::cur->tid.x / 32 % 4;
  float a[2][32], b[32];
  for (int e = 0; e < 2; ++e) numbers_8(a[e], p.a, of_group * 16 + g + 8 * e, p.a_e5m2, p.asked);
  for (int j = 0; j < p.n / 8; ++j)
    for (int h = 0; h < 2; ++h) {
      numbers_8(b, p.b, 8 * j + 2 * t + h, p.b_e5m2, p.asked);
      for (int e = 0; e < 2; ++e) {
        float& d = p.d[4 * j + 2 * e + h];
        double sum = p.scale ? d : 0;
        for (int k = 0; k < 32; ++k) sum += static_cast<double>(a[e][k]) * b[k];
        d = static_cast<float>(sum);
      }
    }
}
inline void perform(const emulated::Product& p) {
  if (p.eight_bits) return perform_8(p);
  auto& w = *emulated::cur->warp;
  const int lane = emulated::cur->lane, g = lane / 4, t = lane % 4, of_group = emulated::cur->tid.x / 32 % 4;
  float a[2][16];
  if (p.rs) {
    for (int i = 0; i < 4; ++i) w.exchange[lane][i] = p.regs[i];
    emulated::warp_sync();
    for (int e = 0; e < 2; ++e)
      for (int k = 0; k < 16; ++k)
        a[e][k] = number(w.exchange[4 * g + k % 8 / 2][e + 2 * (k / 8)] >> 16 * (k % 2), p.bf16);
    emulated::warp_sync();
  } else
    for (int e = 0; e < 2; ++e)
      for (int k = 0; k < 16; ++k) {
        a[e][k] = element(p.a, p.ta, of_group * 16 + g + 8 * e, k, p.bf16, p.asked, t == 0);
      }
  for (int j = 0; j < p.n / 8; ++j)
    for (int h = 0; h < 2; ++h) {
      float b[16];
      for (int k = 0; k < 16; ++k) b[k] = element(p.b, p.tb, 8 * j + 2 * t + h, k, p.bf16, p.asked, g == 0);
      for (int e = 0; e < 2; ++e) {
        float& d = p.d[4 * j + 2 * e + h];
        double sum = p.scale ? d : 0;
        for (int k = 0; k < 16; ++k) sum += (double)a[e][k] * b[k];
        d = (float)sum;
      }
    }
}
// Performs what is waited for, and no more.
template <int Pending>
void wgmma_wait_group() {
  emulated::yield();
  auto& all = emulated::cur->products;
  const auto first_left = std::find_if(
      all.begin(), all.end(), [](const emulated::Product& p) { return p.group >= emulated::cur->group - Pending; });
  for (auto p = all.begin(); p != first_left; ++p) perform(*p);
  all.erase(all.begin(), first_left);
  emulated::warp_sync();
}
template <int N>
struct Wgmma {
  template <typename T, int TA, int TB>
  static void ss(float (&d)[N / 2], uint64_t a, uint64_t b, int scale) {
    emulated::cur->products.push_back({emulated::cur->group,
                                       a,
                                       b,
                                       {},
                                       false,
                                       std::is_same_v<T, __nv_bfloat16>,
                                       TA == 1,
                                       TB == 1,
                                       N,
                                       d,
                                       scale != 0,
                                       races::snapshot()});
  }
  template <typename A, typename B>
  static void ss_fp8(float (&d)[N / 2], uint64_t a, uint64_t b, int scale) {
    emulated::Product product{emulated::cur->group, a, b, {}, false, false, false, false, N, d, scale != 0,
                              races::snapshot()};
    product.a_e5m2 = is_e5m2<A>, product.b_e5m2 = is_e5m2<B>, product.eight_bits = true;
    emulated::cur->products.push_back(product);
  }
  template <typename T, int TB>
  static void rs(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int scale) {
    emulated::cur->products.push_back({emulated::cur->group,
                                       0,
                                       b,
                                       {a[0], a[1], a[2], a[3]},
                                       true,
                                       std::is_same_v<T, __nv_bfloat16>,
                                       false,
                                       TB == 1,
                                       N,
                                       d,
                                       scale != 0,
                                       races::snapshot()});
  }
};
}  // namespace cuda_llm_ops::ptx
