// A generated text, so that a language model trains without any download.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/trainer/data/dataset.h"

namespace clustar::bench::trainer {

inline constexpr std::size_t kDefaultTexts = 2000;
inline constexpr std::string_view kTextAlphabet = " abcdefghijklmnopqrstuvwxyz.,?-\n";
inline constexpr std::size_t kTextVocabulary = kTextAlphabet.size();
inline constexpr std::size_t kTextTokens = 64;  // of an example

// `count` examples of kTextTokens characters each; the label of a character is the next one. Sentences of a small
// grammar, in which verbs agree with their subjects. Example i depends on seed and i only, and is the same on every
// machine.
Dataset generate_text(std::size_t count, std::uint64_t seed);

}  // namespace clustar::bench::trainer
