"""Device code that only reads: seven ways through memory, each launched with the same arguments.

`data` has `vectors` vectors of 16 bytes. `out` has an element a block and thread, so that no load can be left out.
Bulk copies end in shared memory, where nobody looks at the numbers.
"""

from __future__ import annotations

SOURCE = r"""
typedef unsigned long long u64;

// The next kernel of the stream may start as soon as there is room: none of these waits for another's results.
__device__ __forceinline__ void let_the_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ uint4 load(const uint4* place) {
    uint4 value;
    asm("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(place));
    return value;
}

__device__ __forceinline__ uint4 load_once(const uint4* place) {
    uint4 value;
    asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(place));
    return value;
}

template <int Together, bool Once>
__device__ __forceinline__ unsigned read_range(const uint4* data, unsigned at, unsigned end, unsigned step) {
    unsigned sum = 0;
    for (; at < end && end - at > (Together - 1) * step; at += Together * step) {
        uint4 values[Together];
#pragma unroll
        for (int i = 0; i < Together; ++i) {
            const uint4* const place = data + at + i * step;
            values[i] = Once ? load_once(place) : load(place);
        }
#pragma unroll
        for (int i = 0; i < Together; ++i) sum ^= values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
    }
    for (; at < end; at += step) {
        const uint4 value = load(data + at);
        sum ^= value.x ^ value.y ^ value.z ^ value.w;
    }
    return sum;
}

// The whole grid moves along the data together.
template <int Together, bool Once>
__device__ __forceinline__ void strided(const uint4* data, int vectors, unsigned* out) {
    let_the_next_begin();
    const unsigned thread = blockIdx.x * blockDim.x + threadIdx.x;
    out[thread] = read_range<Together, Once>(data, thread, vectors, gridDim.x * blockDim.x);
}

#define KERNEL(name) extern "C" __global__ void name(const uint4* data, int vectors, unsigned* out)

KERNEL(strided_8) { strided<8, false>(data, vectors, out); }
KERNEL(strided_4_once) { strided<4, true>(data, vectors, out); }

// Each block has a range to itself.
KERNEL(ranges_8) {
    let_the_next_begin();
    const u64 share = ((u64)vectors + gridDim.x - 1) / gridDim.x;
    const unsigned begin = (unsigned)min((u64)vectors, share * blockIdx.x);
    const unsigned end = (unsigned)min((u64)vectors, share * (blockIdx.x + 1));
    out[blockIdx.x * blockDim.x + threadIdx.x] = read_range<8, true>(data, begin + threadIdx.x, end, blockDim.x);
}

// Blocks that end after four vectors a thread, as many as that takes.
KERNEL(short_blocks_4) {
    let_the_next_begin();
    const unsigned begin = blockIdx.x * blockDim.x * 4;
    const unsigned end = min((unsigned)vectors, begin + blockDim.x * 4);
    const unsigned sum = read_range<4, true>(data, begin + threadIdx.x, end, blockDim.x);
    if (sum == 0x9E3779B9u) out[threadIdx.x] = sum;  // hardly ever, but the compiler does not know
}

#if __CUDA_ARCH__ >= 900
// Bulk copies of at most Bytes to a ring of stages in shared memory, by one thread of a block.
template <int Bytes, int Stages, bool Ranges>
__device__ __forceinline__ void bulk(const uint4* data, int vectors, unsigned* out) {
    __shared__ alignas(128) unsigned char ring[Bytes * Stages];
    __shared__ alignas(8) u64 arrived[Stages];
    let_the_next_begin();
    if (threadIdx.x != 0) return;
    const unsigned first = (unsigned)__cvta_generic_to_shared(arrived), base = (unsigned)__cvta_generic_to_shared(ring);
    for (int stage = 0; stage < Stages; ++stage) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(first + 8 * stage));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const unsigned unit = Bytes / 16;
    const unsigned pieces = ((unsigned)vectors + unit - 1) / unit;
    const unsigned share = (pieces + gridDim.x - 1) / gridDim.x;
    const unsigned begin = Ranges ? min(pieces, share * blockIdx.x) : blockIdx.x;
    const unsigned end = Ranges ? min(pieces, begin + share) : pieces;
    const unsigned step = Ranges ? 1 : gridDim.x;
    const unsigned count = end > begin ? (end - begin + step - 1) / step : 0;
    for (unsigned i = 0; i < count + Stages; ++i) {
        const unsigned stage = i % Stages;
        if (i >= Stages) {  // wait for the copy that was begun a round before
            unsigned done = i - Stages >= count;
            const unsigned parity = (i / Stages - 1) & 1;
            while (!done) {
                asm volatile(
                    "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(done) : "r"(first + 8 * stage), "r"(parity) : "memory");
            }
        }
        if (i >= count) continue;
        const unsigned at = (begin + i * step) * unit;
        const unsigned bytes = 16 * min(unit, (unsigned)vectors - at);
        const unsigned barrier = first + 8 * stage, to = base + Bytes * stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(to), "l"(data + at), "r"(bytes), "r"(barrier) : "memory");
    }
    if (ring[0] == 1 && ring[1] == 2 && vectors == 0) out[0] = 1;
}

KERNEL(bulk_strided_8k) { bulk<8192, 4, false>(data, vectors, out); }
KERNEL(bulk_ranges_8k) { bulk<8192, 4, true>(data, vectors, out); }
KERNEL(bulk_strided_16k) { bulk<16384, 2, false>(data, vectors, out); }
#else  // older cards have no bulk copies
KERNEL(bulk_strided_8k) { strided<2, true>(data, vectors, out); }
KERNEL(bulk_ranges_8k) { strided<1, true>(data, vectors, out); }
KERNEL(bulk_strided_16k) { strided<4, false>(data, vectors, out); }
#endif
"""
