// How NCCL reads the variables that count for us, too (NCCL v2.28.9, src/misc/param.cc), in our words.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/setting.h"

namespace clustar::nccl_values {

using Text = std::optional<std::string>;
using Translate = decltype(NcclVariable::translate);

// Decimal, 0x.., 0.. octal. NCCL takes "7x" for 7 and "x" for 0; those are nothing here.
inline std::optional<long long> number(const std::string& text) {
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text.c_str(), &end, 0);
  if (text.empty() || errno != 0 || *end != '\0') return std::nullopt;
  return value;
}

// A number in [low, high]; `unset` is NCCL's word for "not set".
inline Translate number_in(long long low, long long high, std::optional<long long> unset = std::nullopt) {
  return [=](const std::string& text) -> Text {
    const auto value = number(text);
    if (value && value == unset) return "";
    if (!value || *value < low || *value > high) return std::nullopt;
    return std::to_string(*value);
  };
}

// For NCCL every number but 0 is yes.
inline Translate yes_or_no(const char* yes, const char* no, std::optional<long long> unset = std::nullopt) {
  return [=](const std::string& text) -> Text {
    const auto value = number(text);
    if (!value) return std::nullopt;
    if (value == unset) return "";
    return *value == 0 ? no : yes;
  };
}

inline Translate one_of_words(std::vector<std::pair<std::string, std::string>> words) {
  return [words = std::move(words)](const std::string& text) -> Text {
    for (const auto& [theirs, ours] : words) {
      if (text == theirs) return ours;
    }
    return std::nullopt;
  };
}

inline Text as_it_is(const std::string& text) { return text; }

}  // namespace clustar::nccl_values
