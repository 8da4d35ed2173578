// The producer of the realigning Hopper attention kernel on the host: the warps' jobs one after another, their lanes one
// after another, copies done at once. Says whether every tile of Q, K and V holds what it should, and whether a copy was
// misaligned or left its tensor. test_attention_realign.py puts sm90_realign.cuh where it is included from here.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline

namespace {

struct uint4 {
  uint32_t x, y, z, w;
};
uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (shift & 31));
}
uint32_t __reduce_add_sync(uint32_t, uint32_t value) { return value; }
void __syncwarp() {}
using std::max;
using std::min;

struct {
  int x;
} threadIdx;

constexpr uint32_t base = 1024;  // the shared address of memory[0]
unsigned char memory[232448];
void* __cvta_shared_to_generic(uint32_t address) { return memory + (address - base); }
uintptr_t tensor_begin, tensor_end;
int faults;

template <typename... Values>
void fault(const char* format, Values... values) {
  if (++faults <= 5) std::printf(format, values...);
}

}  // namespace

namespace cuda_llm_ops {
namespace ptx {
inline uint32_t shared_address(const void*) { return base; }
inline void mbarrier_wait(uint32_t, uint32_t) {}
inline void mbarrier_wait_cluster(uint32_t, uint32_t) {}
inline void mbarrier_arrive(uint32_t) {}
inline void mbarrier_arrive_expect_tx(uint32_t, uint32_t) {}
inline void bar_sync(uint32_t, uint32_t) {}
inline void fence_proxy_async_shared() {}
inline uint32_t cluster_ctarank() { return 0; }
inline uint32_t mapa(uint32_t address, uint32_t) { return address; }
inline void bulk_copy_to_cluster(uint32_t, uint32_t, uint32_t, uint32_t) {}
inline void bulk_load(uint32_t shared, const void* global, uint32_t bytes, uint32_t) {
  const auto from = reinterpret_cast<uintptr_t>(global);
  if ((from | bytes | shared) % 16 != 0) return fault("a copy that is not of whole chunks\n");
  if (from + 15 < tensor_begin || from + bytes > tensor_end) return fault("a copy of what is not the tensor's\n");
  std::memcpy(memory + (shared - base), global, bytes);
}
}  // namespace ptx

namespace cuda::sm90::flash {
struct Rows {
  const void* pointer;
  int64_t batch, head, seq;
  uint64_t end;
};
struct Parameters {
  Rows q_rows, k_rows, v_rows;
  int32_t seq_q, seq_kv, head_dim, group;
};
struct Tile {
  int m, head, batch;
  bool valid;
};
constexpr uint32_t realign_barrier = 8;
int rank;

// One tile: the first rows of the last head.
template <int Cluster>
Tile tile_at(const Parameters&, int i) { return {0, 1, 1, i == 0}; }
template <int BlockN>
int key_blocks(const Parameters& p, int) { return (p.seq_kv + BlockN - 1) / BlockN; }
template <int Stages>
uint32_t ring_stage(uint32_t count) { return count % Stages; }
template <int Stages>
uint32_t ring_parity(uint32_t count) { return count / Stages & 1; }
template <typename C>
int cluster_rank() { return rank; }

// As in sm90_flash.cuh.
template <int HeadDim, int BlockN, int Cluster>
struct Config {
  static constexpr int block_n = BlockN, cluster = Cluster, stages = 2, block_m = 128, q_tiles = 2;
  static constexpr int k_chunks = (HeadDim + 15) / 16 * 2, v_chunks = HeadDim / 8;
  static constexpr int q_bytes = k_chunks * 64 * 16, k_bytes = k_chunks * BlockN * 16, v_bytes = v_chunks * BlockN * 16;
  static constexpr int realign_passes = BlockN / Cluster / 64;
  static constexpr int raw_pitch = ((v_chunks + 1) | 1) * 16, raw_bytes = 64 * raw_pitch;
  static constexpr int zeros_bytes = (v_chunks / 4 + 2) * 16;
};

template <typename C>
struct Layout {
  uint32_t q = base, k = q + 2 * C::q_bytes, v = k + 2 * C::k_bytes, zeros = v + 2 * C::v_bytes;
  uint32_t raw = zeros + C::zeros_bytes;
  uint32_t q_full(int) const { return 0; }
  uint32_t q_empty(int) const { return 0; }
  uint32_t k_full(int) const { return 0; }
  uint32_t k_empty(int) const { return 0; }
  uint32_t v_full(int) const { return 0; }
  uint32_t v_empty(int) const { return 0; }
  uint32_t raw_full(int) const { return 0; }
};
}  // namespace cuda::sm90::flash
}  // namespace cuda_llm_ops

#include "attention/sm90_realign.cuh"

namespace {

using namespace cuda_llm_ops::cuda::sm90::flash;

uint16_t element(int tensor, int row, int column) {
  uint32_t x = tensor * 7919u + row * 15485863u + column * 32452843u;
  x = (x ^ x >> 13) * 2654435761u;
  return static_cast<uint16_t>(x >> 16 | 1);
}

// Two heads of two batches; only the last head has values, what lies around it is another number.
struct Tensor {
  std::vector<uint16_t> storage;
  Rows rows;
  int seq, tensor;

  Tensor(int which, int length, int head_dim, int offset, int pitch) : seq(length), tensor(which) {
    const int64_t heads = 4, used = (heads * seq - 1) * pitch + head_dim;
    storage.assign(static_cast<size_t>(offset + used + 8), 0xABCD);
    uint16_t* first = storage.data();
    while (reinterpret_cast<uintptr_t>(first) % 16 != 0) ++first;
    first += offset;
    for (int r = 0; r < seq; ++r) {
      for (int c = 0; c < head_dim; ++c) first[((heads - 1) * seq + r) * pitch + c] = element(which, r, c);
    }
    rows = {first, 2 * int64_t{seq} * pitch, int64_t{seq} * pitch, pitch, reinterpret_cast<uint64_t>(first + used)};
  }
};

template <typename C>
void work(const Parameters& p, const Tensor (&tensors)[3], int pair) {
  const Layout<C> shared;
  std::vector<std::unique_ptr<Realigner<C>>> lanes;
  for (int thread = 0; thread < 64; ++thread) {
    threadIdx.x = pair * 64 + thread;
    lanes.push_back(std::make_unique<Realigner<C>>(p, shared, pair * 2 + thread / 32));
  }
  const int queries = pair == 1 ? C::q_tiles : 0, blocks = key_blocks<C::block_n>(p, 0);
  for (int done = 0;; ++done) {
    typename Realigner<C>::Job job[64];
    bool more = false;
    for (int t = 0; t < 64; ++t) more = lanes[t]->advance(job[t]);
    if (!more) {
      if (done != queries + blocks * C::realign_passes) fault("%d jobs\n", done);
      return;
    }
    const Tensor& tensor = tensors[job[0].query ? 0 : pair + 1];
    tensor_begin = reinterpret_cast<uintptr_t>(tensor.rows.pointer);
    tensor_end = tensor.rows.end;
    const int chunks = tensor.tensor == 2 ? C::v_chunks : C::k_chunks;
    std::memset(memory + (shared.raw - base), 0xEE, 2 * C::raw_bytes);
    std::memset(memory + (job[0].to - base), 0, 64 * chunks * 16);
    std::memset(memory + (shared.zeros - base), 0, C::zeros_bytes);
    for (int t = 0; t < 64; ++t) lanes[t]->fetch(job[t]);
    for (int t = 0; t < 64; ++t) lanes[t]->realign(job[t], [] {});
    int first = rank * C::block_m + done * 64;
    uint32_t to = shared.q + done * C::q_bytes;
    if (!job[0].query) {
      const int n = (done - queries) / C::realign_passes, pass = (done - queries) % C::realign_passes;
      const int at = (rank + pass) * 64;
      first = (blocks - 1 - n) * C::block_n + at;
      to = (pair == 1 ? shared.v + n % 2 * C::v_bytes : shared.k + n % 2 * C::k_bytes) + at * chunks * 16;
    }
    if (job[0].to != to || job[32].to != to + 32 * chunks * 16) fault("a job for another place\n");
    for (int place = 0; place < 64; ++place) {
      for (int c = 0; c < chunks * 8; ++c) {
        uint16_t found;
        std::memcpy(&found, memory + (to - base) + place / 8 * chunks * 128 + c / 8 * 128 + place % 8 * 16 + c % 8 * 2, 2);
        const int row = first + realigned_row(place);
        const uint16_t wanted = row < tensor.seq && c < p.head_dim ? element(tensor.tensor, row, c) : 0;
        if (found != wanted) fault("tensor %d row %d column %d: %x, not %x\n", tensor.tensor, row, c, found, wanted);
      }
    }
  }
}

template <int HeadDim, int BlockN, int Cluster>
void check(int seq_q, int seq_kv, int head_dim, int offset, int pad) {
  const int pitch = head_dim + pad;
  const Tensor tensors[3] = {{0, seq_q, head_dim, offset, pitch},
                             {1, seq_kv, head_dim, (offset + 1) % 8, pitch},
                             {2, seq_kv, head_dim, (offset + 2) % 8, pitch}};
  const Parameters p = {tensors[0].rows, tensors[1].rows, tensors[2].rows, seq_q, seq_kv, head_dim, 1};
  for (rank = 0; rank < Cluster; ++rank) {
    for (int pair = 0; pair < 2; ++pair) work<Config<HeadDim, BlockN, Cluster>>(p, tensors, pair);
  }
}

}  // namespace

// How much is wrong with rows of head_dim elements, `pad` more apart, that begin `offset` elements past 16 bytes.
extern "C" int realign(int seq_q, int seq_kv, int head_dim, int offset, int pad) {
  faults = 0;
  if (head_dim <= 64) {
    check<64, 128, 1>(seq_q, seq_kv, head_dim, offset, pad);
    check<64, 128, 2>(seq_q, seq_kv, head_dim, offset, pad);
  } else if (head_dim <= 96) {
    check<96, 128, 2>(seq_q, seq_kv, head_dim, offset, pad);
  } else if (head_dim <= 112) {
    check<112, 128, 2>(seq_q, seq_kv, head_dim, offset, pad);
  } else if (head_dim <= 128) {
    check<128, 128, 2>(seq_q, seq_kv, head_dim, offset, pad);
  } else if (head_dim <= 136) {
    check<136, 128, 1>(seq_q, seq_kv, head_dim, offset, pad);
    check<136, 128, 2>(seq_q, seq_kv, head_dim, offset, pad);
  } else if (head_dim <= 160) {
    check<160, 64, 1>(seq_q, seq_kv, head_dim, offset, pad);
  } else {
    check<192, 64, 1>(seq_q, seq_kv, head_dim, offset, pad);
  }
  return faults;
}
