#include "transport/base/shared_digest.h"

#include <algorithm>

namespace clustar {
namespace {

constexpr std::uint64_t kPrime = 4'294'967'291;  // the largest below 2^32

std::uint64_t times(std::uint64_t a, std::uint64_t b) { return a * b % kPrime; }

// 1 .. kPrime - 1, as good as random (FNV-1a, then mixed as in SplitMix64).
std::uint64_t hash(const std::string& text) {
  std::uint64_t sum = 14695981039346656037u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  sum = (sum ^ sum >> 30) * 0xbf58476d1ce4e5b9u;
  sum = (sum ^ sum >> 27) * 0x94d049bb133111ebu;
  return 1 + (sum ^ sum >> 31) % (kPrime - 1);
}

using Differences = std::array<std::uint64_t, SharedDigest::kWords>;

// Multiplies by (x - point): `locator` holds the coefficients, the highest power's 1 left out.
std::vector<std::uint64_t> with_root(const std::vector<std::uint64_t>& locator, std::uint64_t point) {
  std::vector<std::uint64_t> longer(locator.size() + 1, 0);
  for (std::size_t i = 0; i <= locator.size(); ++i) {
    const std::uint64_t same = i < locator.size() ? locator[i] : 1;
    longer[i] = (i > 0 ? locator[i - 1] : 0) + (kPrime - times(same, point));
    longer[i] %= kPrime;
  }
  return longer;
}

// The differences are sums of powers of the locator's roots alone.
bool explains(const std::vector<std::uint64_t>& locator, const Differences& differences) {
  for (std::size_t k = locator.size(); k < differences.size(); ++k) {
    std::uint64_t sum = differences[k];
    for (std::size_t i = 0; i < locator.size(); ++i) {
      sum += times(locator[i], differences[k - locator.size() + i]);
    }
    if (sum % kPrime != 0) return false;
  }
  return true;
}

// The smallest set of so many more names, from `from` on, that explains the differences.
bool search(const Differences& differences, std::span<const std::uint64_t> points, std::size_t more, std::size_t from,
            const std::vector<std::uint64_t>& locator, std::vector<std::size_t>& found) {
  if (more == 0) return explains(locator, differences);
  for (std::size_t i = from; i < points.size(); ++i) {
    found.push_back(i);
    if (search(differences, points, more - 1, i + 1, with_root(locator, points[i]), found)) return true;
    found.pop_back();
  }
  return false;
}

}  // namespace

void SharedDigest::add(const std::string& name, const std::string& value) {
  if (value.empty()) return;
  const std::uint64_t point = hash(name);
  std::uint64_t term = hash(value);
  for (std::uint32_t& word : words) {
    word = static_cast<std::uint32_t>((word + term) % kPrime);
    term = times(term, point);
  }
}

std::vector<std::string> differing(const SharedDigest& here, const SharedDigest& there,
                                   std::span<const std::string> names) {
  Differences differences{};
  for (std::size_t k = 0; k < differences.size(); ++k) {
    differences[k] = (there.words[k] % kPrime + kPrime - here.words[k] % kPrime) % kPrime;
  }
  std::vector<std::uint64_t> points;
  points.reserve(names.size());
  for (const std::string& name : names) points.push_back(hash(name));
  for (std::size_t count = 1; count <= SharedDigest::kNamed; ++count) {
    std::vector<std::size_t> found;
    if (!search(differences, points, count, 0, {}, found)) continue;
    std::vector<std::string> named;
    for (const std::size_t i : found) named.push_back(names[i]);
    return named;
  }
  return {};
}

}  // namespace clustar
