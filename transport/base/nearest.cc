#include "transport/base/nearest.h"

#include <algorithm>
#include <cstddef>

namespace clustar {
namespace {

bool separates(char c) { return c == '_' || c == '-'; }

// Insertions, deletions, replacements, and two neighbours that changed places (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// Whether `part` is a run of whole words of `name`.
bool has_words(std::string_view name, std::string_view part) {
  for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    if ((at == 0 || separates(name[at - 1])) && (end == name.size() || separates(name[end]))) return true;
  }
  return false;
}

// What all names begin with, up to a word's beginning: it says nothing about which one is meant.
std::size_t common_prefix(std::string_view name, const std::vector<std::string>& known) {
  std::size_t length = name.size();
  for (const std::string& one : known) {
    const auto end = std::mismatch(name.begin(), name.end(), one.begin(), one.end()).first;
    length = std::min(length, static_cast<std::size_t>(end - name.begin()));
  }
  while (length > 0 && !separates(name[length - 1])) --length;
  return length;
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& known) {
  if (known.empty()) return {};
  const std::size_t skip = common_prefix(name, known);
  const std::string_view wanted = name.substr(skip);
  if (wanted.size() < 2) return {};
  std::string best;
  std::size_t least = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& one : known) {
    const std::string_view other = std::string_view(one).substr(skip);
    const std::size_t far = wanted.size() > 2 && has_words(other, wanted) ? 1 : distance(wanted, other);
    if (far >= least) continue;
    least = far;
    best = one;
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& known) {
  const std::string one = nearest(name, known);
  return one.empty() ? "" : "; did you mean " + one + "?";
}

}  // namespace clustar
