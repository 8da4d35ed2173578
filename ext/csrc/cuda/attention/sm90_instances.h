// The compiled Hopper flash kernels, a file for each head_dim, smallest head_dim first; and those that pack.
#pragma once

#include "sm90_instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

Family family_64();
Family family_64_tall();
Family family_80();
Family family_96();
Family family_112();
Family family_128();
Family family_144();
Family family_160();
Family family_192();
Family family_256();
Family family_packed_narrow();
Family family_packed_wide();
Family family_packed_widest();

}  // namespace cuda_llm_ops::cuda::sm90::flash
