// What the portable kernels ask of the compiler: inlining into functions made for one processor, and whether there are
// any.
#pragma once

#if defined(__GNUC__)
#define CUDA_LLM_OPS_INLINE inline __attribute__((always_inline))
#else
#define CUDA_LLM_OPS_INLINE inline
#endif
#if defined(__GNUC__) && defined(__x86_64__)
#define CUDA_LLM_OPS_X86 1
#endif
