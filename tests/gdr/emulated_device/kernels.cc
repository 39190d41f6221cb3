// The project's kernels as host code, each known by its name.
#include "tests/gdr/emulated_device/language.h"
//
#include "bench/trainer/graph/cuda/module.cu"
#include "gdr/kernels/importance.cu"
#include "gdr/kernels/zero_ranges.cu"

CLUSTAR_EMULATED_KERNEL(clustar_importance_f32);
CLUSTAR_EMULATED_KERNEL(clustar_importance_f16);
CLUSTAR_EMULATED_KERNEL(clustar_importance_bf16);
CLUSTAR_EMULATED_KERNEL(clustar_zero_ranges);
CLUSTAR_EMULATED_KERNEL(clustar_sum_f32);
CLUSTAR_EMULATED_KERNEL(clustar_sum_f64);
CLUSTAR_EMULATED_KERNEL(clustar_sum_f16);
CLUSTAR_EMULATED_KERNEL(clustar_sum_bf16);
CLUSTAR_EMULATED_KERNEL(clustar_sum_i8);
CLUSTAR_EMULATED_KERNEL(clustar_sum_i32);
CLUSTAR_EMULATED_KERNEL(clustar_sum_i64);
CLUSTAR_EMULATED_KERNEL(clustar_gemm_nt);
CLUSTAR_EMULATED_KERNEL(clustar_gemm_tn);
CLUSTAR_EMULATED_KERNEL(clustar_gemm_nn);
CLUSTAR_EMULATED_KERNEL(clustar_add_bias);
CLUSTAR_EMULATED_KERNEL(clustar_column_sums);
CLUSTAR_EMULATED_KERNEL(clustar_relu);
CLUSTAR_EMULATED_KERNEL(clustar_relu_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_sgd);
CLUSTAR_EMULATED_KERNEL(clustar_round_bf16);
CLUSTAR_EMULATED_KERNEL(clustar_round_f16);
CLUSTAR_EMULATED_KERNEL(clustar_gather_windows);
CLUSTAR_EMULATED_KERNEL(clustar_scatter_windows);
CLUSTAR_EMULATED_KERNEL(clustar_max_pool);
CLUSTAR_EMULATED_KERNEL(clustar_max_pool_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_copy);
CLUSTAR_EMULATED_KERNEL(clustar_gelu);
CLUSTAR_EMULATED_KERNEL(clustar_gelu_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_add);
CLUSTAR_EMULATED_KERNEL(clustar_multiply);
CLUSTAR_EMULATED_KERNEL(clustar_dropout);
CLUSTAR_EMULATED_KERNEL(clustar_average_pool);
CLUSTAR_EMULATED_KERNEL(clustar_average_pool_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_batch_norm_squares);
CLUSTAR_EMULATED_KERNEL(clustar_batch_norm_factors);
CLUSTAR_EMULATED_KERNEL(clustar_scale_columns);
CLUSTAR_EMULATED_KERNEL(clustar_batch_norm_slopes);
CLUSTAR_EMULATED_KERNEL(clustar_batch_norm_totals);
CLUSTAR_EMULATED_KERNEL(clustar_batch_norm_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_layer_norm);
CLUSTAR_EMULATED_KERNEL(clustar_layer_norm_slopes);
CLUSTAR_EMULATED_KERNEL(clustar_layer_norm_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_embedding);
CLUSTAR_EMULATED_KERNEL(clustar_embedding_gradient);
CLUSTAR_EMULATED_KERNEL(clustar_attention_weights);
CLUSTAR_EMULATED_KERNEL(clustar_attention_output);
CLUSTAR_EMULATED_KERNEL(clustar_attention_slopes);
CLUSTAR_EMULATED_KERNEL(clustar_attention_gradient);
