// What an example of a data set of text says.
#pragma once

#include <cstddef>
#include <string>

#include "bench/trainer/data/text.h"

namespace clustar::bench::trainer {

inline std::string text_of(const Dataset& dataset, std::size_t example) {
  std::string text;
  for (std::size_t t = 0; t < kTextTokens; ++t) text += kTextAlphabet[dataset.pixels[example * kTextTokens + t]];
  return text;
}

}  // namespace clustar::bench::trainer
