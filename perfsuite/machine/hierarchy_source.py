"""Device code that measures the memory hierarchy: chases for latency, streams for bandwidth.

In a chase one thread loads the address of its next load, so a step takes the latency. In a stream the whole card reads
wide vectors. Their combined value is stored, so that the compiler can leave out no load.
"""

from __future__ import annotations

SOURCE = r"""
typedef unsigned long long u64;

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// out: cycles, nanoseconds, last address. `ring` holds, at the start of each line, the address of another line.
extern "C" __global__ void chase_global(const u64* ring, int warm_up, int steps, long long* out) {
    u64 at = (u64)ring;
    for (int step = 0; step < warm_up; ++step) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
    u64 began = nanoseconds();
    long long start = clock64();
#pragma unroll 16
    for (int step = 0; step < steps; ++step) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at));
    out[2] = (long long)at;  // depends on the last load, so the clock is read after that load
    long long end = clock64() + (at == 0);
    out[0] = end - start;
    out[1] = (long long)(nanoseconds() - began);
}

extern "C" __global__ void chase_shared(int steps, long long* out) {
    __shared__ unsigned ring[1024];
    unsigned base = (unsigned)__cvta_generic_to_shared(ring);
    for (unsigned place = 0; place < 1024; ++place) ring[place] = base + 4u * ((place * 37u + 11u) % 1024u);
    unsigned at = base;
    u64 began = nanoseconds();
    long long start = clock64();
#pragma unroll 16
    for (int step = 0; step < steps; ++step) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(at));
    out[2] = at;
    long long end = clock64() + (at == 0);
    out[0] = end - start;
    out[1] = (long long)(nanoseconds() - began);
}

// Reads `vectors` vectors of 16 bytes, `passes` times, past the L1. `out` has an element a block and thread.
extern "C" __global__ void read_global(const uint4* data, int vectors, int passes, unsigned* out) {
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    unsigned sum = 0;
    for (int pass = 0; pass < passes; ++pass) {
#pragma unroll 8
        for (unsigned place = thread; place < (unsigned)vectors; place += threads) {
            uint4 value;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(data + place));
            sum ^= value.x ^ value.y ^ value.z ^ value.w;
        }
    }
    out[thread] = sum;
}

extern "C" __global__ void copy_global(const uint4* source, uint4* target, int vectors) {
    unsigned thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
#pragma unroll 4
    for (unsigned place = thread; place < (unsigned)vectors; place += threads) {
        uint4 value = __ldcs(source + place);
        __stcs(target + place, value);
    }
}

// 1024 threads of a block read 16 KiB of shared memory, a vector each, `passes` times, rotated by a warp a pass.
extern "C" __global__ void read_shared(int passes, unsigned* out) {
    __shared__ uint4 data[1024];
    data[threadIdx.x] = make_uint4(threadIdx.x, blockIdx.x, passes, 1);
    __syncthreads();
    unsigned base = (unsigned)__cvta_generic_to_shared(data), sum = 0, offset = threadIdx.x * 16;
#pragma unroll 16
    for (int pass = 0; pass < passes; ++pass) {
        uint4 value;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "r"(base + offset));
        sum ^= value.x ^ value.y ^ value.z ^ value.w;
        offset = (offset + 512) & 16383;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
"""
