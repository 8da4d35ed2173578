// wgmma: a warpgroup (4 consecutive warps, the first a multiple of 4) multiplies 64 x 16 by 16 x N of 16-bit elements
// and adds to 64 x N float32 accumulators. PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".
//
// Shapes: m64nNk16, N a multiple of 8 up to 256. Accumulators: N / 2 registers a thread. Thread t of the warpgroup,
// w = t / 32, l = t % 32, holds in d[4 j + {0, 1, 2, 3}] the elements (r, c), (r, c + 1), (r + 8, c), (r + 8, c + 1),
// r = 16 w + l / 4, c = 8 j + 2 (l % 4). A from registers (the rs form): a[0..3] hold packed pairs
// (r, k..k+1), (r + 8, k..k+1), (r, k + 8..), (r + 8, k + 8..), k = 2 (l % 4): two neighbouring 8-column groups of an
// accumulator, packed to 16 bits in the order 0 1, 2 3, 4 5, 6 7, are such a fragment without any shuffle.
//
// Order: wgmma_fence() before the first wgmma and whenever other instructions wrote the accumulators or the A
// registers; the wgmma's; wgmma_commit_group(); wgmma_wait_group<n>(). Between commit and wait no instruction may touch
// those registers (ptxas then serialises: warnings C75xx). Pass accumulators through wgmma_fence_operand() before the
// first and after the last, so that the compiler moves nothing across.
//
// Matrix descriptors, 128-byte swizzle (what TMA writes with CU_TENSOR_MAP_SWIZZLE_128B), tile base 1024-byte aligned:
//   K-major (rows of 64 elements along K, 128 bytes; 8 rows are an atom of 1024 bytes):
//     k_major_descriptor(base): stride 1024 between 8-row groups. Next k16 step: + 2 (32 bytes, encoded). Next 64 rows:
//     + 512 (8192 bytes). Next 64 elements of K: another tile, + rows * 128 bytes.
//   MN-major (rows of 64 elements along M or N, one row per k; panels of `rows_k` rows beside each other):
//     mn_major_descriptor(base, rows_k): leading offset = rows_k * 128 between 64-wide panels, stride 1024 between
//     groups of 8 k. Next k16 step: + 128 (2048 bytes). Set the transpose argument of the wgmma.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace cuda_llm_ops::ptx {

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most `Pending` committed groups are in flight.
template <int Pending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Emits nothing; pins a register at this place in the program.
__device__ __forceinline__ void wgmma_fence_operand(float& value) { asm volatile("" : "+f"(value)::"memory"); }
__device__ __forceinline__ void wgmma_fence_operand(uint32_t& value) { asm volatile("" : "+r"(value)::"memory"); }

template <typename T, int N>
__device__ __forceinline__ void wgmma_fence_operand(T (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) wgmma_fence_operand(values[i]);
}

// The descriptor's fields, PTX ISA "Matrix Descriptor Format"; 1 in the top two bits is the 128-byte swizzle.
__device__ __forceinline__ uint64_t matrix_descriptor(uint32_t shared, uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((shared & 0x3FFFF) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ uint64_t k_major_descriptor(uint32_t shared) { return matrix_descriptor(shared, 16, 1024); }

__device__ __forceinline__ uint64_t mn_major_descriptor(uint32_t shared, uint32_t rows_k) {
  return matrix_descriptor(shared, rows_k * 128, 1024);
}

// Wgmma<N>::ss<T, transpose_a, transpose_b>(d, descriptor_a, descriptor_b, scale_d): d = a b + (scale_d ? d : 0).
// Wgmma<N>::rs<T, transpose_b>(d, a, descriptor_b, scale_d): the same with A from registers (K-major by nature).
// T is __half or __nv_bfloat16; transpose 0 is K-major, 1 is MN-major.
// Wgmma<N>::ss_fp8<A, B>(d, descriptor_a, descriptor_b, scale_d): of 8-bit numbers, m64nNk32, both K-major, with A and B
// E4m3 or E5m2. A row of 128 bytes is 128 elements; the next k32 step is + 2 again. The sum keeps fewer bits than
// float32 has.
template <int N>
struct Wgmma;

template <typename T>
inline constexpr bool is_bfloat16 = false;
template <>
inline constexpr bool is_bfloat16<__nv_bfloat16> = true;

struct E4m3;
struct E5m2;
template <typename T>
inline constexpr bool is_e5m2 = false;
template <>
inline constexpr bool is_e5m2<E5m2> = true;

// Lists of the first 4, 8, ... accumulators: operand names, and operands.
#define CUDA_LLM_OPS_R4 "%0, %1, %2, %3"
#define CUDA_LLM_OPS_R8 CUDA_LLM_OPS_R4 ", %4, %5, %6, %7"
#define CUDA_LLM_OPS_R12 CUDA_LLM_OPS_R8 ", %8, %9, %10, %11"
#define CUDA_LLM_OPS_R16 CUDA_LLM_OPS_R12 ", %12, %13, %14, %15"
#define CUDA_LLM_OPS_R20 CUDA_LLM_OPS_R16 ", %16, %17, %18, %19"
#define CUDA_LLM_OPS_R24 CUDA_LLM_OPS_R20 ", %20, %21, %22, %23"
#define CUDA_LLM_OPS_R28 CUDA_LLM_OPS_R24 ", %24, %25, %26, %27"
#define CUDA_LLM_OPS_R32 CUDA_LLM_OPS_R28 ", %28, %29, %30, %31"
#define CUDA_LLM_OPS_R36 CUDA_LLM_OPS_R32 ", %32, %33, %34, %35"
#define CUDA_LLM_OPS_R40 CUDA_LLM_OPS_R36 ", %36, %37, %38, %39"
#define CUDA_LLM_OPS_R44 CUDA_LLM_OPS_R40 ", %40, %41, %42, %43"
#define CUDA_LLM_OPS_R48 CUDA_LLM_OPS_R44 ", %44, %45, %46, %47"
#define CUDA_LLM_OPS_R52 CUDA_LLM_OPS_R48 ", %48, %49, %50, %51"
#define CUDA_LLM_OPS_R56 CUDA_LLM_OPS_R52 ", %52, %53, %54, %55"
#define CUDA_LLM_OPS_R60 CUDA_LLM_OPS_R56 ", %56, %57, %58, %59"
#define CUDA_LLM_OPS_R64 CUDA_LLM_OPS_R60 ", %60, %61, %62, %63"
#define CUDA_LLM_OPS_R68 CUDA_LLM_OPS_R64 ", %64, %65, %66, %67"
#define CUDA_LLM_OPS_R72 CUDA_LLM_OPS_R68 ", %68, %69, %70, %71"
#define CUDA_LLM_OPS_R76 CUDA_LLM_OPS_R72 ", %72, %73, %74, %75"
#define CUDA_LLM_OPS_R80 CUDA_LLM_OPS_R76 ", %76, %77, %78, %79"
#define CUDA_LLM_OPS_R84 CUDA_LLM_OPS_R80 ", %80, %81, %82, %83"
#define CUDA_LLM_OPS_R88 CUDA_LLM_OPS_R84 ", %84, %85, %86, %87"
#define CUDA_LLM_OPS_R92 CUDA_LLM_OPS_R88 ", %88, %89, %90, %91"
#define CUDA_LLM_OPS_R96 CUDA_LLM_OPS_R92 ", %92, %93, %94, %95"
#define CUDA_LLM_OPS_R100 CUDA_LLM_OPS_R96 ", %96, %97, %98, %99"
#define CUDA_LLM_OPS_R104 CUDA_LLM_OPS_R100 ", %100, %101, %102, %103"
#define CUDA_LLM_OPS_R108 CUDA_LLM_OPS_R104 ", %104, %105, %106, %107"
#define CUDA_LLM_OPS_R112 CUDA_LLM_OPS_R108 ", %108, %109, %110, %111"
#define CUDA_LLM_OPS_R116 CUDA_LLM_OPS_R112 ", %112, %113, %114, %115"
#define CUDA_LLM_OPS_R120 CUDA_LLM_OPS_R116 ", %116, %117, %118, %119"
#define CUDA_LLM_OPS_R124 CUDA_LLM_OPS_R120 ", %120, %121, %122, %123"
#define CUDA_LLM_OPS_R128 CUDA_LLM_OPS_R124 ", %124, %125, %126, %127"
#define CUDA_LLM_OPS_D4 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define CUDA_LLM_OPS_D8 CUDA_LLM_OPS_D4, "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define CUDA_LLM_OPS_D12 CUDA_LLM_OPS_D8, "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11])
#define CUDA_LLM_OPS_D16 CUDA_LLM_OPS_D12, "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define CUDA_LLM_OPS_D20 CUDA_LLM_OPS_D16, "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19])
#define CUDA_LLM_OPS_D24 CUDA_LLM_OPS_D20, "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define CUDA_LLM_OPS_D28 CUDA_LLM_OPS_D24, "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27])
#define CUDA_LLM_OPS_D32 CUDA_LLM_OPS_D28, "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define CUDA_LLM_OPS_D36 CUDA_LLM_OPS_D32, "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35])
#define CUDA_LLM_OPS_D40 CUDA_LLM_OPS_D36, "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define CUDA_LLM_OPS_D44 CUDA_LLM_OPS_D40, "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43])
#define CUDA_LLM_OPS_D48 CUDA_LLM_OPS_D44, "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define CUDA_LLM_OPS_D52 CUDA_LLM_OPS_D48, "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51])
#define CUDA_LLM_OPS_D56 CUDA_LLM_OPS_D52, "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define CUDA_LLM_OPS_D60 CUDA_LLM_OPS_D56, "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59])
#define CUDA_LLM_OPS_D64 CUDA_LLM_OPS_D60, "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define CUDA_LLM_OPS_D68 CUDA_LLM_OPS_D64, "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67])
#define CUDA_LLM_OPS_D72 CUDA_LLM_OPS_D68, "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define CUDA_LLM_OPS_D76 CUDA_LLM_OPS_D72, "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75])
#define CUDA_LLM_OPS_D80 CUDA_LLM_OPS_D76, "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define CUDA_LLM_OPS_D84 CUDA_LLM_OPS_D80, "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83])
#define CUDA_LLM_OPS_D88 CUDA_LLM_OPS_D84, "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define CUDA_LLM_OPS_D92 CUDA_LLM_OPS_D88, "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91])
#define CUDA_LLM_OPS_D96 CUDA_LLM_OPS_D92, "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define CUDA_LLM_OPS_D100 CUDA_LLM_OPS_D96, "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99])
#define CUDA_LLM_OPS_D104 CUDA_LLM_OPS_D100, "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define CUDA_LLM_OPS_D108 CUDA_LLM_OPS_D104, "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107])
#define CUDA_LLM_OPS_D112 CUDA_LLM_OPS_D108, "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define CUDA_LLM_OPS_D116 CUDA_LLM_OPS_D112, "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115])
#define CUDA_LLM_OPS_D120 CUDA_LLM_OPS_D116, "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define CUDA_LLM_OPS_D124 CUDA_LLM_OPS_D120, "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123])
#define CUDA_LLM_OPS_D128 CUDA_LLM_OPS_D124, "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])

// R registers; P0 to P6 are the numbers R to R + 6, as asm text needs them.
#define CUDA_LLM_OPS_WGMMA_SS(N, R, TYPE, P0, P1, P2, P3, P4)                                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2                                               \
               ", 0;\n"                                                                               \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" CUDA_LLM_OPS_R##R \
               "}, %" #P0 ", %" #P1 ", p, 1, 1, %" #P3 ", %" #P4 ";\n}\n"                             \
               : CUDA_LLM_OPS_D##R                                                                    \
               : "l"(a), "l"(b), "r"(scale_d), "n"(TransposeA), "n"(TransposeB))

#define CUDA_LLM_OPS_WGMMA_RS(N, R, TYPE, P0, P1, P2, P3, P4, P5, P6)                                 \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P5                                               \
               ", 0;\n"                                                                               \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" CUDA_LLM_OPS_R##R \
               "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", p, 1, 1, %" #P6 ";\n}\n"       \
               : CUDA_LLM_OPS_D##R                                                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(scale_d), "n"(TransposeB))

#define CUDA_LLM_OPS_WGMMA_FP8(N, R, TYPES, P0, P1, P2)                                                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #P2                                                            \
               ", 0;\n"                                                                                            \
               "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32." TYPES " {" CUDA_LLM_OPS_R##R "}, %" #P0 ", %" #P1 \
                                                                                              ", p, 1, 1;\n}\n"    \
               : CUDA_LLM_OPS_D##R                                                                                 \
               : "l"(a), "l"(b), "r"(scale_d))

#define CUDA_LLM_OPS_WGMMA(N, R, P0, P1, P2, P3, P4, P5, P6)                                                    \
  template <>                                                                                                   \
  struct Wgmma<N> {                                                                                             \
    template <typename T, int TransposeA, int TransposeB>                                                       \
    __device__ __forceinline__ static void ss(float (&d)[R], uint64_t a, uint64_t b, int scale_d) {             \
      if constexpr (is_bfloat16<T>) {                                                                           \
        CUDA_LLM_OPS_WGMMA_SS(N, R, "bf16", P0, P1, P2, P3, P4);                                                \
      } else {                                                                                                  \
        CUDA_LLM_OPS_WGMMA_SS(N, R, "f16", P0, P1, P2, P3, P4);                                                 \
      }                                                                                                         \
    }                                                                                                           \
    template <typename A, typename B>                                                                           \
    __device__ __forceinline__ static void ss_fp8(float (&d)[R], uint64_t a, uint64_t b, int scale_d) {         \
      if constexpr (is_e5m2<A>) {                                                                               \
        CUDA_LLM_OPS_WGMMA_FP8(N, R, "e5m2.e4m3", P0, P1, P2);                                                  \
      } else if constexpr (is_e5m2<B>) {                                                                        \
        CUDA_LLM_OPS_WGMMA_FP8(N, R, "e4m3.e5m2", P0, P1, P2);                                                  \
      } else {                                                                                                  \
        CUDA_LLM_OPS_WGMMA_FP8(N, R, "e4m3.e4m3", P0, P1, P2);                                                  \
      }                                                                                                         \
    }                                                                                                           \
    template <typename T, int TransposeB>                                                                       \
    __device__ __forceinline__ static void rs(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int scale_d) { \
      if constexpr (is_bfloat16<T>) {                                                                           \
        CUDA_LLM_OPS_WGMMA_RS(N, R, "bf16", P0, P1, P2, P3, P4, P5, P6);                                        \
      } else {                                                                                                  \
        CUDA_LLM_OPS_WGMMA_RS(N, R, "f16", P0, P1, P2, P3, P4, P5, P6);                                         \
      }                                                                                                         \
    }                                                                                                           \
  }

CUDA_LLM_OPS_WGMMA(8, 4, 4, 5, 6, 7, 8, 9, 10);
CUDA_LLM_OPS_WGMMA(16, 8, 8, 9, 10, 11, 12, 13, 14);
CUDA_LLM_OPS_WGMMA(24, 12, 12, 13, 14, 15, 16, 17, 18);
CUDA_LLM_OPS_WGMMA(32, 16, 16, 17, 18, 19, 20, 21, 22);
CUDA_LLM_OPS_WGMMA(40, 20, 20, 21, 22, 23, 24, 25, 26);
CUDA_LLM_OPS_WGMMA(48, 24, 24, 25, 26, 27, 28, 29, 30);
CUDA_LLM_OPS_WGMMA(56, 28, 28, 29, 30, 31, 32, 33, 34);
CUDA_LLM_OPS_WGMMA(64, 32, 32, 33, 34, 35, 36, 37, 38);
CUDA_LLM_OPS_WGMMA(72, 36, 36, 37, 38, 39, 40, 41, 42);
CUDA_LLM_OPS_WGMMA(80, 40, 40, 41, 42, 43, 44, 45, 46);
CUDA_LLM_OPS_WGMMA(88, 44, 44, 45, 46, 47, 48, 49, 50);
CUDA_LLM_OPS_WGMMA(96, 48, 48, 49, 50, 51, 52, 53, 54);
CUDA_LLM_OPS_WGMMA(104, 52, 52, 53, 54, 55, 56, 57, 58);
CUDA_LLM_OPS_WGMMA(112, 56, 56, 57, 58, 59, 60, 61, 62);
CUDA_LLM_OPS_WGMMA(120, 60, 60, 61, 62, 63, 64, 65, 66);
CUDA_LLM_OPS_WGMMA(128, 64, 64, 65, 66, 67, 68, 69, 70);
CUDA_LLM_OPS_WGMMA(136, 68, 68, 69, 70, 71, 72, 73, 74);
CUDA_LLM_OPS_WGMMA(144, 72, 72, 73, 74, 75, 76, 77, 78);
CUDA_LLM_OPS_WGMMA(152, 76, 76, 77, 78, 79, 80, 81, 82);
CUDA_LLM_OPS_WGMMA(160, 80, 80, 81, 82, 83, 84, 85, 86);
CUDA_LLM_OPS_WGMMA(168, 84, 84, 85, 86, 87, 88, 89, 90);
CUDA_LLM_OPS_WGMMA(176, 88, 88, 89, 90, 91, 92, 93, 94);
CUDA_LLM_OPS_WGMMA(184, 92, 92, 93, 94, 95, 96, 97, 98);
CUDA_LLM_OPS_WGMMA(192, 96, 96, 97, 98, 99, 100, 101, 102);
CUDA_LLM_OPS_WGMMA(200, 100, 100, 101, 102, 103, 104, 105, 106);
CUDA_LLM_OPS_WGMMA(208, 104, 104, 105, 106, 107, 108, 109, 110);
CUDA_LLM_OPS_WGMMA(216, 108, 108, 109, 110, 111, 112, 113, 114);
CUDA_LLM_OPS_WGMMA(224, 112, 112, 113, 114, 115, 116, 117, 118);
CUDA_LLM_OPS_WGMMA(232, 116, 116, 117, 118, 119, 120, 121, 122);
CUDA_LLM_OPS_WGMMA(240, 120, 120, 121, 122, 123, 124, 125, 126);
CUDA_LLM_OPS_WGMMA(248, 124, 124, 125, 126, 127, 128, 129, 130);
CUDA_LLM_OPS_WGMMA(256, 128, 128, 129, 130, 131, 132, 133, 134);

#undef CUDA_LLM_OPS_R4
#undef CUDA_LLM_OPS_D4
#undef CUDA_LLM_OPS_R8
#undef CUDA_LLM_OPS_D8
#undef CUDA_LLM_OPS_R12
#undef CUDA_LLM_OPS_D12
#undef CUDA_LLM_OPS_R16
#undef CUDA_LLM_OPS_D16
#undef CUDA_LLM_OPS_R20
#undef CUDA_LLM_OPS_D20
#undef CUDA_LLM_OPS_R24
#undef CUDA_LLM_OPS_D24
#undef CUDA_LLM_OPS_R28
#undef CUDA_LLM_OPS_D28
#undef CUDA_LLM_OPS_R32
#undef CUDA_LLM_OPS_D32
#undef CUDA_LLM_OPS_R36
#undef CUDA_LLM_OPS_D36
#undef CUDA_LLM_OPS_R40
#undef CUDA_LLM_OPS_D40
#undef CUDA_LLM_OPS_R44
#undef CUDA_LLM_OPS_D44
#undef CUDA_LLM_OPS_R48
#undef CUDA_LLM_OPS_D48
#undef CUDA_LLM_OPS_R52
#undef CUDA_LLM_OPS_D52
#undef CUDA_LLM_OPS_R56
#undef CUDA_LLM_OPS_D56
#undef CUDA_LLM_OPS_R60
#undef CUDA_LLM_OPS_D60
#undef CUDA_LLM_OPS_R64
#undef CUDA_LLM_OPS_D64
#undef CUDA_LLM_OPS_R68
#undef CUDA_LLM_OPS_D68
#undef CUDA_LLM_OPS_R72
#undef CUDA_LLM_OPS_D72
#undef CUDA_LLM_OPS_R76
#undef CUDA_LLM_OPS_D76
#undef CUDA_LLM_OPS_R80
#undef CUDA_LLM_OPS_D80
#undef CUDA_LLM_OPS_R84
#undef CUDA_LLM_OPS_D84
#undef CUDA_LLM_OPS_R88
#undef CUDA_LLM_OPS_D88
#undef CUDA_LLM_OPS_R92
#undef CUDA_LLM_OPS_D92
#undef CUDA_LLM_OPS_R96
#undef CUDA_LLM_OPS_D96
#undef CUDA_LLM_OPS_R100
#undef CUDA_LLM_OPS_D100
#undef CUDA_LLM_OPS_R104
#undef CUDA_LLM_OPS_D104
#undef CUDA_LLM_OPS_R108
#undef CUDA_LLM_OPS_D108
#undef CUDA_LLM_OPS_R112
#undef CUDA_LLM_OPS_D112
#undef CUDA_LLM_OPS_R116
#undef CUDA_LLM_OPS_D116
#undef CUDA_LLM_OPS_R120
#undef CUDA_LLM_OPS_D120
#undef CUDA_LLM_OPS_R124
#undef CUDA_LLM_OPS_D124
#undef CUDA_LLM_OPS_R128
#undef CUDA_LLM_OPS_D128
#undef CUDA_LLM_OPS_WGMMA_SS
#undef CUDA_LLM_OPS_WGMMA_RS
#undef CUDA_LLM_OPS_WGMMA_FP8
#undef CUDA_LLM_OPS_WGMMA

}  // namespace cuda_llm_ops::ptx
