// Settings as a user writes them: key=value,key=value.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace clustar::bench::coflow {

struct Key {
  std::string_view name;
  double least = 0;
  double most = 0;
  bool whole = false;  // no fractions
  std::function<void(double)> set{};
};

inline std::function<void(double)> into(double& value) {
  return [at = &value](double read) { *at = read; };
}
inline std::function<void(double)> into(std::size_t& value) {
  return [at = &value](double read) { *at = static_cast<std::size_t>(read); };
}

// Any of them, each once at most. Errors name what is allowed: `allowed`, or else names and limits.
Result<void> read_keys(std::string_view text, std::span<const Key> keys, std::string allowed = {});

}  // namespace clustar::bench::coflow
