// The cost model of FP8 products: how long a plan takes, in microseconds. No CUDA, so that the program that fits the
// constants (ext/cost_models) compiles it for the host.
//
// The constants were fitted to times measured on one NVIDIA H200: those of persistent kernels to 159 of
// records/h200/survey-fp8.txt, of plans at most 30 % slower than the quickest; those of few-rows kernels to 183 of
// records/h200/survey-fp8-few-rows.txt. The program reads and writes the structs below: one `double name = value;` a
// line.
#pragma once

#include "plan.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// Of persistent kernels. Cycles are those of the tensor core, which multiplies 4096 pairs in one.
struct PersistentCosts {
  double outside = 1.451;  // launch, first loads and drain
  double cycles_a_microsecond = 1417;
  double one_round_cycles = 79.91;   // of a block of k more, where two warpgroups multiply 64 rows of it each
  double two_rounds_cycles = 94.79;  // where they multiply 128 rows each
  double scaled_cycles = 122.5;      // of a block of k more, where scales vary along k
  double latency = 1.977;            // of a ring of stages
  double cluster_outside = 0.3094;
  double end = 0.7444;  // of a tile
  double memory_bytes_a_microsecond = 2.969e+06;
};

// Of few-rows kernels.
struct FewRowsCosts {
  double outside = 1.619;
  double stage = 0.08936;                // a stage's round: barrier, products begun and waited for
  double box = 0.0752;                   // more, for each block of k
  double row = 0.002146;                 // more, for each block of k and row of the tile
  double scaled_row = 0.00214;           // the same, where scales vary along k
  double shared_multiprocessor = 1.365;  // factor where two blocks share one
  double memory_bytes_a_microsecond = 4.055e+06;
  double tiles_read_again = 0.2755;  // share of the weights, for each further tile of rows
  double peer = 1.634;               // a further block of a cluster
  double end_a_row = 1e-6;           // results of a row of a
  double peer_a_row = 0.001796;      // the same, for each block of the cluster
  double late_wave = 2.426;          // for each further wave of blocks
};

struct CostModel {
  PersistentCosts persistent;
  FewRowsCosts few_rows;
};

double modelled_microseconds(const Fp8GemmArguments& arguments, const Plan& plan, int sms, const CostModel& costs = {});

}  // namespace cuda_llm_ops::cuda::fp8::sm90
