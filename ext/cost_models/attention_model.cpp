// The cost model of the Hopper attention kernels for many problems at once, for attention.py.
#include <cstdint>
#include <cstring>

#include "cuda/attention/sm90/schedule.h"
#include "cuda/counters.h"

namespace flash = cuda_llm_ops::cuda::sm90::flash;

// Of CUDA, what the files of the model refer to besides. The model calls none of it.
namespace cuda_llm_ops::cuda {
uint32_t* counters_for(cudaStream_t, cudaError_t*) { return nullptr; }
}  // namespace cuda_llm_ops::cuda
extern "C" {
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return ""; }
}

namespace {

// In the order of FIELDS in attention.py.
struct Row {
  int32_t batch, heads, kv_heads, seq_q, seq_kv, head_dim, causal, misaligned;
  int32_t instance_head_dim, block_m, block_n, cluster, split_keys, cross_tile, stream_k, part_bytes;
  int32_t multiprocessors;
};

}  // namespace

extern "C" {

int fields_of_a_row() { return sizeof(Row) / sizeof(int32_t); }
int instance_constants() { return sizeof(flash::Cost) / sizeof(double); }

// The cost of each row, in the unit of flash::Cost, with constants of its own; infinite if the instance cannot do it.
void costs(const int32_t* rows, int64_t count, const double* constants, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    Row row;
    std::memcpy(&row, rows + i * fields_of_a_row(), sizeof(row));
    flash::Instance instance{};
    instance.head_dim = row.instance_head_dim, instance.block_m = row.block_m, instance.block_n = row.block_n;
    instance.cluster = row.cluster, instance.split_keys = row.split_keys, instance.cross_tile = row.cross_tile;
    instance.stream_k = row.stream_k, instance.part_bytes = row.part_bytes;
    std::memcpy(&instance.cost, constants + i * instance_constants(), sizeof(instance.cost));
    cuda_llm_ops::AttentionArguments a;
    a.batch = row.batch, a.heads = row.heads, a.kv_heads = row.kv_heads;
    a.seq_q = row.seq_q, a.seq_kv = row.seq_kv, a.head_dim = a.value_dim = row.head_dim, a.causal = row.causal;
    // Addresses that nothing reads: their alignment is what counts.
    a.q = a.k = a.v = reinterpret_cast<const void*>(static_cast<uintptr_t>(row.misaligned ? 16 : 128));
    const auto dense = [&](int heads, int64_t seq) {
      return cuda_llm_ops::HeadStrides{heads * seq * row.head_dim, seq * row.head_dim, row.head_dim};
    };
    a.q_stride = a.out_stride = dense(row.heads, row.seq_q);
    a.k_stride = a.v_stride = dense(row.kv_heads, row.seq_kv);
    out[i] = flash::plan(instance, a, row.multiprocessors, true).cost;
  }
}

}  // extern "C"
