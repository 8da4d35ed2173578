// Which Hopper kernel computes what: the smallest head_dim that holds the asked one, and of its instances the one whose
// busiest block has the least to do.
#include <cuda_runtime.h>

#include "../device.h"
#include "sm90.h"
#include "sm90_instances.h"
#include "sm90_launch.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

using FamilyFunction = flash::Family (*)();

// By head_dim, smallest first.
constexpr FamilyFunction families[] = {
    flash::family_64,
    flash::family_64_tall,
    flash::family_80,
    flash::family_96,
    flash::family_112,
    flash::family_128,
    flash::family_144,
    flash::family_160,
    flash::family_192,
    flash::family_256,
    flash::family_realigned_narrow,
    flash::family_realigned_wide,
    flash::family_realigned_widest,
};

// The largest head_dim whose rows are worth realigning.
constexpr int most_realigned = 192;

bool takes(const AttentionArguments& a) {
  return a.head_dim <= (flash::describable(a) ? 256 : most_realigned);
}

}  // namespace

bool flash_attention_supported(const AttentionArguments& arguments) {
  // A negative or NaN scale would make the row's largest score its smallest weight; 0 times the -inf of a masked score
  // is NaN.
  return (arguments.type == ScalarType::float16 || arguments.type == ScalarType::bfloat16) &&
         arguments.scale > 0.0f && takes(arguments) && current_device_or_none().capability == 90;
}

const char* flash_attention(const AttentionArguments& arguments, cudaStream_t stream) {
  const int multiprocessors = current_device_or_none().multiprocessors;
  const bool realigned = !flash::describable(arguments);
  const flash::Instance* best = nullptr;
  flash::Plan best_plan{};
  for (const FamilyFunction function : families) {
    const flash::Family family = function();
    for (int i = 0; i < family.count; ++i) {
      const flash::Instance& instance = family.instances[i];
      if (instance.type != arguments.type || instance.realigned != realigned || instance.head_dim < arguments.head_dim ||
          (best != nullptr && instance.head_dim > best->head_dim)) {
        continue;
      }
      const flash::Plan candidate = flash::plan(instance, arguments, multiprocessors);
      if (best == nullptr || candidate.cost < best_plan.cost) {
        best = &instance;
        best_plan = candidate;
      }
    }
  }
  if (best == nullptr) return "no Hopper attention kernel for this head_dim and alignment";
  return flash::launch(*best, best_plan, arguments, stream);
}

void attention_attributes(std::vector<KernelAttributes>& into) {
  for (const FamilyFunction function : families) {
    const flash::Family family = function();
    for (int i = 0; i < family.count; ++i) attention::add_attributes(family.instances[i].kernel, into);
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
