// A transformer that predicts the next token.
#pragma once

#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

// GPT-2's structure (layer norm before attention and before the dense layers; Radford et al., 2019), small, without
// dropout, its output not tied to the embedding.
Model make_gpt(const ModelOptions& options);

}  // namespace clustar::bench::trainer
