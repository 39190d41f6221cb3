// How long a sweep runs, and from which seed: from the environment, for runs longer than CI's.
#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace clustar::tests {

// A positive number, or `otherwise` where the variable is not set. Anything else fails the test, for a sweep of no
// messages would pass.
inline std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* set = std::getenv(name);
  if (set == nullptr) return otherwise;
  const std::string_view text(set);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number > 0) return number;
  ADD_FAILURE() << name << " = '" << text << "': a number from 1 on is allowed";
  return otherwise;
}

}  // namespace clustar::tests
