#include "tests/nccl_host/ranks/arguments.h"

#include <cstdio>
#include <cstdlib>

namespace nccl_host {

void WrongUsage(const char* program, const std::string& message) {
  std::fprintf(stderr, "%s: %s; see %s --help\n", program, message.c_str(), program);
  std::exit(2);
}

size_t NumberOrExit(const char* program, const std::string& option, const std::string& text, size_t least,
                    size_t most) {
  char* end = nullptr;
  size_t value = text.empty() || text[0] < '0' || text[0] > '9' ? most + 1 : std::strtoull(text.c_str(), &end, 10);
  const size_t shift = !end || !*end ? 0 : *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 64;
  const bool unit = shift != 0 && end && end[1] == '\0';
  const bool good = end && end != text.c_str() && (shift == 0 || unit) && shift < 64 && value <= most >> shift;
  if (good) value <<= shift;
  if (!good || value < least)
    WrongUsage(program, option + " needs a number from " + std::to_string(least) + " to " + std::to_string(most) +
                            ", not '" + text + "'");
  return value;
}

bool TakeRankOption(RankOptions& options, const std::string& option, const std::string& text) {
  const auto number = [&](size_t least, size_t most) {
    return static_cast<int>(NumberOrExit(options.program, option, text, least, most));
  };
  if (option == "-g" || option == "--ranks")
    options.ranks = number(1, 64);
  else if (option == "-T" || option == "--timeout")
    options.timeout = number(1, 3600);
  else if (option == "-L" || option == "--launch")
    options.launch = text;
  else if (option == "--rank")
    options.rank = number(0, 63);
  else if (option == "--shared")
    options.shared = text;
  else
    return false;
  return true;
}

}  // namespace nccl_host
