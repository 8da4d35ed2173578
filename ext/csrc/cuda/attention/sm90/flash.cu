// Chooses the Hopper kernel for a problem: among the instances of the smallest head_dim that is large enough, the one
// whose busiest thread block costs the least.
#include "flash.h"

#include <cuda_runtime.h>

#include <cmath>

#include "../../device.h"
#include "instances.h"
#include "launch.h"
#include "padded.h"
#include "realigned.h"
#include "schedule.h"
#include "stream_k.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

bool takes(const AttentionArguments& a) {
  // A negative or NaN scale would make the row's largest score its smallest weight; 0 times the -inf of a masked score
  // is NaN.
  return (a.type == ScalarType::float16 || a.type == ScalarType::bfloat16) && a.scale > 0.0f && a.head_dim <= 256 &&
         current_device_or_none().capability == 90;
}

bool fits(const flash::Instance& instance, const AttentionArguments& a) {
  const bool narrow = instance.value_dim < instance.head_dim;
  return narrow == (a.value_dim < a.head_dim) && a.value_dim <= instance.value_dim && a.head_dim <= instance.head_dim &&
         a.head_dim >= instance.least_head_dim;
}

struct Choice {
  const flash::Instance* instance = nullptr;
  flash::Plan plan{};
};

// may_stream_k: there is a workspace in which thread blocks can share tiles.
Choice choose(const AttentionArguments& a, bool realigned, bool may_stream_k) {
  const int multiprocessors = current_device_or_none().multiprocessors;
  Choice best;
  for (const flash::Instances instances : flash::kInstances) {
    for (const flash::Instance& instance : instances(a.type)) {
      if (instance.realigned != realigned || !fits(instance, a) ||
          (best.instance != nullptr && instance.head_dim > best.instance->head_dim) ||
          (realigned && !flash::realignable(instance, a))) {
        continue;
      }
      const flash::Plan candidate = flash::plan(instance, a, multiprocessors, may_stream_k);
      if (!std::isfinite(candidate.cost)) continue;
      if (best.instance == nullptr || candidate.cost < best.plan.cost) best = {&instance, candidate};
    }
  }
  return best;
}

bool same(const HeadStrides& a, const HeadStrides& b) {
  return a.batch == b.batch && a.head == b.head && a.seq == b.seq;
}

// Whether the choice for `a` is that for `b`: it depends on sizes, and on the alignment of pointers and strides.
bool same_choice(const AttentionArguments& a, const AttentionArguments& b) {
  return a.type == b.type && a.causal == b.causal && a.batch == b.batch && a.heads == b.heads &&
         a.kv_heads == b.kv_heads && a.seq_q == b.seq_q && a.seq_kv == b.seq_kv && a.head_dim == b.head_dim &&
         a.value_dim == b.value_dim && a.q == b.q && a.k == b.k && a.v == b.v && a.out == b.out &&
         same(a.q_stride, b.q_stride) && same(a.k_stride, b.k_stride) && same(a.v_stride, b.v_stride) &&
         same(a.out_stride, b.out_stride);
}

// The last choice that flash_attention_workspace_bytes() made on this thread. The launch that follows asks for the
// same.
struct Remembered {
  AttentionArguments arguments;
  int multiprocessors = 0;
  Choice choice;
};
thread_local Remembered remembered;

// Whether an instance of the smallest head_dim that is large enough takes stream-K.
bool has_stream_k(const AttentionArguments& a) {
  const flash::Instance* smallest = nullptr;
  bool found = false;
  for (const flash::Instances instances : flash::kInstances) {
    for (const flash::Instance& instance : instances(a.type)) {
      if (instance.realigned || !fits(instance, a)) continue;
      if (smallest == nullptr || instance.head_dim < smallest->head_dim) {
        smallest = &instance;
        found = false;
      }
      found = found || (instance.head_dim == smallest->head_dim && instance.stream_k);
    }
  }
  return found;
}

}  // namespace

size_t flash_attention_workspace_bytes(const AttentionArguments& arguments) {
  if (!takes(arguments)) return 0;
  const bool realigned = !flash::describable(arguments);
  if (!realigned && (arguments.causal || !has_stream_k(arguments))) return 0;
  const Choice choice = choose(arguments, realigned, true);
  if (choice.instance == nullptr) {
    return flash::worth_padding(arguments) ? flash::padded_workspace_bytes(arguments) : 0;
  }
  remembered = {arguments, current_device_or_none().multiprocessors, choice};
  return realigned ? flash::realignment_workspace_bytes(*choice.instance, arguments)
                   : flash::stream_k_workspace_bytes(*choice.instance, choice.plan);
}

bool takes_narrow_values(const AttentionArguments& arguments) {
  return takes(arguments) && flash::describable(arguments) && choose(arguments, false, false).instance != nullptr;
}

bool flash_attention_supported(const AttentionArguments& arguments) {
  return takes(arguments) && (flash::describable(arguments) || arguments.workspace != nullptr);
}

const char* flash_attention(const AttentionArguments& arguments, cudaStream_t stream) {
  const bool may_stream_k = arguments.workspace != nullptr;
  const bool known = remembered.choice.instance != nullptr && same_choice(arguments, remembered.arguments) &&
                     remembered.multiprocessors == current_device_or_none().multiprocessors &&
                     (may_stream_k || !remembered.choice.instance->stream_k);
  const Choice choice = known ? remembered.choice : choose(arguments, !flash::describable(arguments), may_stream_k);
  if (choice.instance == nullptr && may_stream_k && flash::worth_padding(arguments)) {
    AttentionArguments padded;
    if (const char* refused = flash::pad(arguments, padded, stream)) return refused;
    if (const char* refused = flash_attention(padded, stream)) return refused;
    return flash::unpad(padded, arguments, stream);
  }
  if (choice.instance == nullptr) return "no Hopper attention kernel for this head_dim and alignment";
  return flash::launch(*choice.instance, choice.plan, arguments, stream);
}

void attention_attributes(std::vector<KernelAttributes>& into) {
  for (const flash::Instances instances : flash::kInstances) {
    for (const ScalarType type : {ScalarType::float16, ScalarType::bfloat16}) {
      for (const flash::Instance& instance : instances(type)) attention::add_attributes(instance.kernel, into);
    }
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
