#include "bench/trainer/data/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "bench/trainer/data/file_bytes.h"
#include "bench/trainer/data/text.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{512} << 20;
constexpr std::size_t kFewestExamples = 5;  // split_dataset() takes no fewer

struct Token {
  std::uint8_t token = 0;
  bool replaced = false;  // by '-', of which it says nothing
};

constexpr char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  if (c == '\t' || c == '\r') return ' ';
  if (c == '!') return '.';
  if (c == ';' || c == ':') return ',';
  return c;
}

constexpr std::array<Token, 256> make_tokens() {
  std::array<Token, 256> tokens{};
  for (std::size_t byte = 0; byte < tokens.size(); ++byte) {
    const std::size_t token = kTextAlphabet.find(folded(static_cast<char>(byte)));
    const bool known = token != std::string_view::npos;
    tokens[byte] = {static_cast<std::uint8_t>(known ? token : kTextAlphabet.find('-')), !known};
  }
  return tokens;
}
constexpr std::array<Token, 256> kTokens = make_tokens();

}  // namespace

Result<Dataset> text_dataset(std::span<const std::uint8_t> bytes, const std::string& name) {
  if (const auto zero = std::find(bytes.begin(), bytes.end(), 0); zero != bytes.end()) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is no text: a byte of 0 in line {} (byte {})", name,
                            1 + std::count(bytes.begin(), zero, '\n'), zero - bytes.begin()));
  }
  const std::size_t examples = bytes.empty() ? 0 : (bytes.size() - 1) / kTextTokens;
  if (examples < kFewestExamples) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' has {} bytes; allowed: {} or more, {} examples of {}", name, bytes.size(),
                            kFewestExamples * kTextTokens + 1, kFewestExamples, kTextTokens));
  }
  Dataset dataset;
  dataset.rows = kTextTokens;
  dataset.columns = 1;
  dataset.classes = kTextVocabulary;
  dataset.labels_per_example = kTextTokens;
  dataset.scale = 1;
  dataset.pixels.reserve(examples * kTextTokens);
  dataset.labels.reserve(examples * kTextTokens);
  std::size_t replaced = 0;
  for (std::size_t i = 0; i < examples * kTextTokens; ++i) {
    dataset.pixels.push_back(kTokens[bytes[i]].token);
    dataset.labels.push_back(kTokens[bytes[i + 1]].token);
    replaced += kTokens[bytes[i]].replaced ? 1 : 0;
  }
  dataset.source = fmt::format("{} (text; {:.1f} % of its bytes are not in the alphabet and became '-')", name,
                               100.0 * static_cast<double>(replaced) / static_cast<double>(examples * kTextTokens));
  return dataset;
}

Result<Dataset> load_text(const std::string& path) {
  const auto bytes = file_bytes(path, kMostBytes);
  if (!bytes) return tl::unexpected(bytes.error());
  return text_dataset(*bytes, path);
}

}  // namespace clustar::bench::trainer
