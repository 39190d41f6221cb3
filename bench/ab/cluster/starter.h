// The programs that start ranks on a cluster, and what each of them is told.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::ab::cluster {

enum class Starter : std::uint8_t { kMpirun, kTorchrun, kSrun };
const char* to_string(Starter starter);  // as it is called

struct Spec {
  Starter starter = Starter::kMpirun;
  std::string version;            // as it says itself; empty: it does not say
  std::vector<std::string> more;  // words of the user, behind ours
  // Where rank 0 listens: a host as all ranks reach it, and the first of the ports. Empty with torchrun, whose ranks
  // are on this machine: loopback.
  std::string root_host;
  int root_port = 29500;
};

// As a shell takes text apart: blanks between words; '...', "..." and \ keep what is inside. kInvalidArgument: a quote
// that does not end.
Result<std::vector<std::string>> split_words(const std::string& text);

// "HOST" or "HOST:PORT", "[IPV6]:PORT". kInvalidArgument: none of these.
Result<void> set_root(const std::string& text, Spec& spec);

// What begins the command: `ranks` processes of the program whose words follow, each with the environment variables
// `names` as they are in the starter's own environment. `port`: a free one of this machine, for torchrun.
std::vector<std::string> words_of(const Spec& spec, int ranks, const std::vector<std::string>& names,
                                  const std::string& port);

// What to do about a failure that the starter's words name, or "".
std::string remedy(Starter starter, const std::string& said);

// Whether it is there, and its version. kUnavailable with what to do: it is not, or it is another program of that name.
Result<std::string> find_version(Starter starter);

}  // namespace clustar::bench::ab::cluster
