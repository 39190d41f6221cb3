#include "bench/trainer/data/text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kFirstTextStream = 3ull << 40;

constexpr std::array<std::string_view, 8> kAdjectives{"small", "quick",  "old",   "quiet",
                                                      "green", "bright", "heavy", "new"};
constexpr std::array<std::string_view, 8> kNouns{"fox",    "river",  "engine", "garden",
                                                 "switch", "letter", "stone",  "bird"};
constexpr std::array<std::string_view, 8> kVerbs{"follow", "carry", "leave", "hear", "turn", "meet", "paint", "lift"};
constexpr std::array<std::string_view, 4> kPlaces{"at night", "in the rain", "near the bridge", "again"};

template <std::size_t N>
std::string_view pick(const std::array<std::string_view, N>& words, Rng& rng) {
  return words[rng.below(N)];
}

std::string_view article(Rng& rng) { return rng.below(2) == 0 ? "the" : "every"; }

std::string sentence(Rng& rng) {
  const bool many = rng.below(2) == 0;
  const auto subject = pick(kNouns, rng);
  std::string text = many ? fmt::format("two {} {}s ", pick(kAdjectives, rng), subject)
                          : fmt::format("{} {} {} ", article(rng), pick(kAdjectives, rng), subject);
  text += fmt::format("{}{} {} {}", pick(kVerbs, rng), many ? "" : "s", article(rng), pick(kNouns, rng));
  if (rng.below(3) == 0) text += fmt::format(" {}", pick(kPlaces, rng));
  return text + ". ";
}

}  // namespace

Dataset generate_text(std::size_t count, std::uint64_t seed) {
  Dataset dataset;
  dataset.source = fmt::format("generated text (seed {})", seed);
  dataset.rows = kTextTokens;
  dataset.columns = 1;
  dataset.classes = kTextVocabulary;
  dataset.labels_per_example = kTextTokens;
  dataset.scale = 1;
  for (std::size_t i = 0; i < count; ++i) {
    Rng rng(seed, kFirstTextStream + i);
    std::string text = sentence(rng);
    text.erase(0, rng.below(text.size()));  // an example starts anywhere
    while (text.size() <= kTextTokens) text += sentence(rng);
    for (std::size_t t = 0; t < kTextTokens; ++t) {
      dataset.pixels.push_back(static_cast<std::uint8_t>(kTextAlphabet.find(text[t])));
      dataset.labels.push_back(static_cast<std::uint16_t>(kTextAlphabet.find(text[t + 1])));
    }
  }
  return dataset;
}

}  // namespace clustar::bench::trainer
