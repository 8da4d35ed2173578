// Every compiled kernel of this folder but the varlen ones. A new head_dim takes two files: instances/d<head_dim>.cu,
// and this one, which declares its function and lists it.
#pragma once

#include "../../array_view.h"
#include "instance.h"

namespace cuda_llm_ops::cuda::sm90::flash {

// Instances of one element type. One file each in instances/, so that they compile in parallel.
using Instances = ArrayView<Instance> (*)(ScalarType type);

ArrayView<Instance> instances_d64(ScalarType type);
ArrayView<Instance> instances_d64_192_rows(ScalarType type);
ArrayView<Instance> instances_d80(ScalarType type);
ArrayView<Instance> instances_d96(ScalarType type);
ArrayView<Instance> instances_d112(ScalarType type);
ArrayView<Instance> instances_d128(ScalarType type);
ArrayView<Instance> instances_d144(ScalarType type);
ArrayView<Instance> instances_d160(ScalarType type);
ArrayView<Instance> instances_d192(ScalarType type);
ArrayView<Instance> instances_d256(ScalarType type);
ArrayView<Instance> instances_realigned_d64_d112(ScalarType type);
ArrayView<Instance> instances_realigned_d128_d136(ScalarType type);
ArrayView<Instance> instances_realigned_d160_d192(ScalarType type);

// In ascending order of head_dim, the realigned ones apart: the choice (flash.cu) relies on that order.
constexpr Instances kInstances[] = {
    instances_d64,
    instances_d64_192_rows,
    instances_d80,
    instances_d96,
    instances_d112,
    instances_d128,
    instances_d144,
    instances_d160,
    instances_d192,
    instances_d256,
    instances_realigned_d64_d112,
    instances_realigned_d128_d136,
    instances_realigned_d160_d192,
};

}  // namespace cuda_llm_ops::cuda::sm90::flash
