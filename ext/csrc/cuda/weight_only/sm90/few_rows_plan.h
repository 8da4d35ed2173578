// How the kernel of few rows shares a product, by a model of its time. No CUDA, so that tests and the program that fits
// the constants (ext/cost_models) compile it for the host.
//
// The constants were fitted to 307 times measured on one NVIDIA H200, and to 426 plans seen to be slower than a time
// (records/h200/survey-weights-few-rows.txt). The program reads and writes the struct below: one
// `double name = value;` a line.
#pragma once

#include "kernels.h"

namespace cuda_llm_ops::cuda::weight_only::sm90 {

// Where the parts of a stage lie. TMA writes to multiples of 128 bytes, and panels of x to multiples of 1024.
struct FewRowsStage {
  int32_t weights_at, scales_at, zeros_at, bytes;
};

FewRowsStage few_rows_stage(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan);

int32_t few_rows_stages(int32_t stage_bytes);

// Microseconds. "More with 16 rows" is more than with 8.
struct FewRowsCosts {
  double outside = 3.724;      // launch, first loads, sums and results
  double int4_tile = 0.01558;  // of a multiprocessor for a packed tile
  double int4_zeros = 0.00479;
  double int4_rows = 0.002481;  // more with 16 rows
  double int8_tile = 0.02201;
  double stage = 0.1712;  // of a block for a stage, whatever else runs
  double stage_warp = 0.0324;
  double stage_rows = 0.07744;  // more with 16 rows
  double memory_bytes_a_microsecond = 4.091e+06;
  double two_blocks_meet = 0.732;
  double four_blocks_meet = 1.568;
  double late_round = 1.765;  // of blocks that share their columns
};

// The time of a plan in microseconds, or 0 if it is not possible.
double few_rows_microseconds(const WeightOnlyArguments& a, int32_t rows, const FewRowsPlan& plan,
                             int32_t multiprocessors, const FewRowsCosts& cost = {});

// The plan of the least time. A block of one tile is always possible.
FewRowsPlan few_rows_plan(const WeightOnlyArguments& a, int32_t rows, int32_t multiprocessors);

}  // namespace cuda_llm_ops::cuda::weight_only::sm90
