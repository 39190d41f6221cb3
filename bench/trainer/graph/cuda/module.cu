// All kernels that the trainer launches, as one module.
#include "bench/trainer/graph/cuda/dense.cu"
#include "bench/trainer/graph/cuda/gemm.cu"
#include "bench/trainer/graph/cuda/image.cu"
#include "bench/trainer/graph/cuda/norm.cu"
#include "bench/trainer/graph/cuda/text.cu"
#include "gdr/kernels/sum.cu"
