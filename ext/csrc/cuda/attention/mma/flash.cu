// Chooses the instance for the arguments and launches it.
#include "flash.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cfloat>
#include <initializer_list>

#include "../../../arithmetic.h"
#include "../../device.h"
#include "../../error_text.h"
#include "config.cuh"

namespace cuda_llm_ops::cuda {
namespace flash_mma {
namespace {

bool rows_aligned(const void* tensor, const HeadStrides& stride, int batch, int heads, int rows) {
  // A stride that nothing is multiplied with but 0 may be anything.
  return reinterpret_cast<uintptr_t>(tensor) % 16 == 0 && (batch == 1 || stride.batch % 8 == 0) &&
         (heads == 1 || stride.head % 8 == 0) && (rows == 1 || stride.seq % 8 == 0);
}

Strides narrow(const HeadStrides& stride) {
  return {static_cast<int32_t>(stride.batch), static_cast<int32_t>(stride.head), static_cast<int32_t>(stride.seq)};
}

int64_t blocks_of(const AttentionArguments& a, int rows) {
  return static_cast<int64_t>(a.batch) * a.heads * ceil_div(a.seq_q, rows);
}

constexpr int kStaticShared = 128;  // bytes of the kernel's own, as the compiler rounds them

// Blocks of 4 warps come two to a multiprocessor, or it has too few warps to hide anything.
bool fits(const Instance& instance, const DeviceFacts& device) {
  const int shared = instance.kernel.shared + kStaticShared;
  return shared <= device.shared_per_block &&
         (instance.kernel.threads >= 256 || 2 * (shared + 1024) <= device.shared_per_sm);
}

// Of the narrowest instances that hold the rows (their widths within one 16-byte chunk), the first that fits. If a
// launch of that would leave a good part of the device idle, the last one, with the fewest rows in a thread block. A
// spare one counts only if the device cannot hold the one before it.
// Causal blocks differ in length, so it takes more of them to keep the device busy to the end.
const Instance* choose(const AttentionArguments& a, std::initializer_list<ArrayView<Instance>> lists,
                       const DeviceFacts& device) {
  const Instance* best = nullptr;
  const Instance* last = nullptr;
  int width = 0;
  for (const ArrayView<Instance>& among : lists) {
    for (const Instance& one : among) {
      if (a.head_dim > one.head_dim || a.head_dim < one.least_head_dim) continue;
      if (width == 0) width = one.head_dim;
      if (one.head_dim > width + 7) break;
      if (one.spare && last != nullptr && last->kernel.shared + kStaticShared <= device.shared_per_block) continue;
      last = &one;
      if (best == nullptr && fits(one, device)) best = &one;
    }
  }
  if (last == nullptr || last->kernel.shared + kStaticShared > device.shared_per_block) return best;
  const int64_t enough = int64_t{device.multiprocessors} * (a.causal ? 8 : 3);
  return best == nullptr || blocks_of(a, best->rows) * 4 < enough ? last : best;
}

// Every row of q, k and v begins on a 16-byte boundary.
bool inputs_aligned(const AttentionArguments& a) {
  return a.head_dim % 8 == 0 && rows_aligned(a.q, a.q_stride, a.batch, a.heads, a.seq_q) &&
         rows_aligned(a.k, a.k_stride, a.batch, a.kv_heads, a.seq_kv) &&
         rows_aligned(a.v, a.v_stride, a.batch, a.kv_heads, a.seq_kv);
}

constexpr const char* kTooLittleShared = "flash_attention: the device has too little shared memory for this head_dim";

// Everything but the order of the tiles.
Parameters parameters(const Instance& instance, const AttentionArguments& a) {
  Parameters p{};
  p.q = a.q;
  p.k = a.k;
  p.v = a.v;
  p.out = a.out;
  p.q_stride = narrow(a.q_stride);
  p.k_stride = narrow(a.k_stride);
  p.v_stride = narrow(a.v_stride);
  p.out_stride = narrow(a.out_stride);
  p.heads = a.heads;
  p.group = a.heads / a.kv_heads;
  p.seq_q = a.seq_q;
  p.seq_kv = a.seq_kv;
  p.head_dim = a.head_dim;
  p.row_blocks = ceil_div(a.seq_q, instance.rows);
  p.batch_heads = a.batch * a.heads;
  p.scale_log2 = a.scale * kLog2E;
  p.causal = a.causal;
  p.out_aligned = a.head_dim % 8 == 0 && rows_aligned(a.out, a.out_stride, a.batch, a.heads, a.seq_q);
  return p;
}

// Causal tiles differ in length. The heads of a section are computed together, longest tiles first, so that the device
// does not end on long ones. A section has as many heads as keep their K and V in the L2 cache.
int32_t causal_section(const Parameters& p) {
  const int64_t kv_bytes = std::max<int64_t>(1, static_cast<int64_t>(p.seq_kv) * p.head_dim * 4);
  return static_cast<int32_t>(std::clamp<int64_t>((int64_t{16} << 20) / kv_bytes * p.group, p.group, p.batch_heads));
}

}  // namespace

namespace {

template <typename T>
const Instance* choose_typed(const AttentionArguments& a, const DeviceFacts& device) {
  const Instance* chosen = inputs_aligned(a) ? choose(a, {aligned<T>(), wide<T>()}, device) : nullptr;
  return chosen != nullptr ? chosen : choose(a, {realigned<T>()}, device);
}

}  // namespace

const Instance* choose(const AttentionArguments& a, const char*& refused) {
  DeviceFacts device{};
  refused = error_text(current_device_facts(&device));
  if (refused != nullptr) return nullptr;
  const Instance* chosen =
      a.type == ScalarType::float16 ? choose_typed<__half>(a, device) : choose_typed<__nv_bfloat16>(a, device);
  if (chosen == nullptr) refused = kTooLittleShared;
  return chosen;
}

const Instance* choose_varlen(const AttentionArguments& a, const char*& refused) {
  DeviceFacts device{};
  refused = error_text(current_device_facts(&device));
  if (refused != nullptr) return nullptr;
  const bool realign = !inputs_aligned(a);
  for (const Instance& one : a.type == ScalarType::float16 ? varlen<__half>() : varlen<__nv_bfloat16>()) {
    if (one.realigned == realign && one.head_dim >= a.head_dim &&
        one.kernel.shared + kStaticShared <= device.shared_per_block) {
      return &one;
    }
  }
  refused = kTooLittleShared;
  return nullptr;
}

const char* run(const Instance& instance, const AttentionArguments& a, cudaStream_t stream) {
  Parameters p = parameters(instance, a);
  p.section = a.causal ? causal_section(p) : 1;  // otherwise one head after the other
  NoOptions none;
  void* arguments[] = {&p, &none};
  return attention::launch(instance.kernel, dim3(static_cast<unsigned>(p.batch_heads * p.row_blocks)),
                           instance.kernel.threads, arguments, stream);
}

const char* run_varlen(const Instance& instance, const AttentionArguments& a, const AttentionOptions& options,
                       cudaStream_t stream) {
  Parameters p = parameters(instance, a);
  const bool unequal = options.cu_seqlens_q != nullptr || options.right < kEveryKey;
  p.section = unequal ? causal_section(p) : 1;
  // Not infinite: a score of 0 would be NaN.
  p.scale_log2 = std::min(p.scale_log2, FLT_MAX);
  void* arguments[] = {&p, const_cast<AttentionOptions*>(&options)};
  return attention::launch(instance.kernel, dim3(static_cast<unsigned>(p.batch_heads * p.row_blocks)),
                           instance.kernel.threads, arguments, stream);
}

}  // namespace flash_mma

namespace attention {

const char* flash_mma(const AttentionArguments& arguments, cudaStream_t stream) {
  const char* refused = nullptr;
  const flash_mma::Instance* chosen = flash_mma::choose(arguments, refused);
  return chosen == nullptr ? refused : flash_mma::run(*chosen, arguments, stream);
}

const char* flash_mma_varlen(const AttentionArguments& arguments, const AttentionOptions& options,
                             cudaStream_t stream) {
  const char* refused = nullptr;
  const flash_mma::Instance* chosen = flash_mma::choose_varlen(arguments, refused);
  return chosen == nullptr ? refused : flash_mma::run_varlen(*chosen, arguments, options, stream);
}

void flash_mma_attributes(std::vector<KernelAttributes>& into) {
  using namespace flash_mma;
  for (const ArrayView<Instance>& all :
       {aligned<__half>(), wide<__half>(), realigned<__half>(), aligned<__nv_bfloat16>(), wide<__nv_bfloat16>(),
        realigned<__nv_bfloat16>(), varlen<__half>(), varlen<__nv_bfloat16>()}) {
    for (const Instance& one : all) add_attributes(one.kernel, into);
  }
}

}  // namespace attention
}  // namespace cuda_llm_ops::cuda
