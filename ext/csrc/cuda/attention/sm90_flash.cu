// Which Hopper kernel computes what: the smallest head_dim that holds the asked one, and of its instances the one whose
// busiest block has the least to do.
#include <cuda_runtime.h>

#include <cmath>

#include "../device.h"
#include "sm90.h"
#include "sm90_instances.h"
#include "sm90_launch.h"

namespace cuda_llm_ops::cuda::sm90 {
namespace {

using FamilyFunction = flash::Family (*)();

// By head_dim, smallest first.
constexpr FamilyFunction families[] = {
    flash::family_64,  flash::family_64_tall, flash::family_80,            flash::family_96,
    flash::family_112, flash::family_128,     flash::family_144,           flash::family_160,
    flash::family_192, flash::family_256,     flash::family_packed_narrow, flash::family_packed_wide,
    flash::family_packed_widest,
};

bool takes(const AttentionArguments& a) {
  // A negative or NaN scale would make the row's largest score its smallest weight; 0 times the -inf of a masked score
  // is NaN.
  return (a.type == ScalarType::float16 || a.type == ScalarType::bfloat16) && a.scale > 0.0f && a.head_dim <= 256 &&
         current_device_or_none().capability == 90;
}

struct Choice {
  const flash::Instance* instance = nullptr;
  flash::Plan plan{};
};

// may_share: with a workspace, blocks may share tiles.
Choice choose(const AttentionArguments& a, bool may_share) {
  const int multiprocessors = current_device_or_none().multiprocessors;
  const bool packed = !flash::describable(a);
  Choice best;
  for (const FamilyFunction function : families) {
    const flash::Family family = function();
    for (int i = 0; i < family.count; ++i) {
      const flash::Instance& instance = family.instances[i];
      if (instance.type != a.type || instance.packed != packed || instance.head_dim < a.head_dim ||
          (best.instance != nullptr && instance.head_dim > best.instance->head_dim) ||
          (packed && !flash::packable(instance, a))) {
        continue;
      }
      const flash::Plan candidate = flash::plan(instance, a, multiprocessors, may_share);
      if (!std::isfinite(candidate.cost)) continue;
      if (best.instance == nullptr || candidate.cost < best.plan.cost) best = {&instance, candidate};
    }
  }
  return best;
}

}  // namespace

size_t flash_attention_workspace_bytes(const AttentionArguments& arguments) {
  const bool packed = !flash::describable(arguments);
  if (!takes(arguments) || (!packed && (arguments.causal || arguments.head_dim > 64))) return 0;  // no instance shares
  const Choice choice = choose(arguments, true);
  if (choice.instance == nullptr) return 0;
  return packed ? flash::workspace_bytes(*choice.instance, arguments)
                : flash::shared_tiles_bytes(*choice.instance, choice.plan);
}

bool flash_attention_supported(const AttentionArguments& arguments) {
  return takes(arguments) && (flash::describable(arguments) || arguments.workspace != nullptr);
}

const char* flash_attention(const AttentionArguments& arguments, cudaStream_t stream) {
  const Choice choice = choose(arguments, arguments.workspace != nullptr);
  if (choice.instance == nullptr) return "no Hopper attention kernel for this head_dim and alignment";
  return flash::launch(*choice.instance, choice.plan, arguments, stream);
}

void attention_attributes(std::vector<KernelAttributes>& into) {
  for (const FamilyFunction function : families) {
    const flash::Family family = function();
    for (int i = 0; i < family.count; ++i) attention::add_attributes(family.instances[i].kernel, into);
  }
}

}  // namespace cuda_llm_ops::cuda::sm90
