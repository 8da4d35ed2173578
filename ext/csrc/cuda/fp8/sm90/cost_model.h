// The cost model of FP8 products: how long a plan takes, in microseconds. No CUDA, so that the program that fits the
// constants (ext/cost_models) compiles it for the host.
//
// The constants were fitted to 812 times measured on one NVIDIA H100 (records/h100/survey-fp8.txt). The program reads
// and writes the structs below: one `double name = value;` a line.
#pragma once

#include "plan.h"

namespace cuda_llm_ops::cuda::fp8::sm90 {

// Of persistent kernels. Cycles are those of the tensor core, which multiplies 4096 pairs in one.
struct PersistentCosts {
  double outside = 2.308;  // launch, first loads and drain
  double cycles_a_microsecond = 1390;
  double one_round_cycles = 87.29;  // of a block of k more, where a warpgroup multiplies 64 rows of it only
  double scaled_cycles = 134.6;     // of 64 rows of a block of k more, where scales vary along k
  double l2_bytes_a_cycle = 75.42;  // of a thread block
  double latency = 1.755;           // of a ring of stages
  double cluster = 0.05141;         // share of the time that a cluster adds
  double cluster_outside = 0.2245;
  double end = 0.6858;  // of a tile
  double memory_bytes_a_microsecond = 2.456e+06;
  double fast_products = 0.981;  // factor on the tensor core's time without promotion
};

// Of few-rows kernels.
struct FewRowsCosts {
  double outside = 2.756;
  double stage = 0.1248;                 // a stage's round: barrier, products begun and waited for
  double box = 0.08115;                  // more, for each block of k
  double row = 0.001955;                 // more, for each block of k and row of the tile
  double scaled_row = 0.001767;          // the same, where scales vary along k
  double shared_multiprocessor = 1.634;  // factor where two blocks share one
  double memory_bytes_a_microsecond = 3.047e+06;
  double tiles_read_again = 0.1855;  // share of the weights, for each further tile of rows
  double peer = 0.5598;              // a further block of a cluster
  double end_a_row = 0.02815;        // results of a row of a
  double peer_a_row = 0.04672;       // the same, for each block of the cluster
  double late_wave = 0.5568;         // for each further wave of blocks
};

struct CostModel {
  PersistentCosts persistent;
  FewRowsCosts few_rows;
};

double modelled_microseconds(const Fp8GemmArguments& arguments, const Plan& plan, int sms, const CostModel& costs = {});

}  // namespace cuda_llm_ops::cuda::fp8::sm90
