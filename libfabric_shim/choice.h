// Which provider is taken, and why no other. Pure.
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::transport::ofi {

struct Choice {
  std::string provider;
  std::string why;                   // for people
  std::vector<std::string> refused;  // "shm: one host only; ..." for each other one
};

// `there`: the names of the providers, without repetition. `forced`: OfiSettings::provider, a whole name or its front
// ("tcp" for "tcp;ofi_rxm"); empty: the best. Errors list what is there: kInvalidArgument for a name that is not,
// kUnavailable if none of the usual ones is.
// Our own provider (libfabric_shim/provider) counts as not there.
Result<Choice> choose(const std::vector<std::string>& there, const std::string& forced);
// What to say where `provider` would be taken but for `progress` (OfiSettings::progress), which only `with_it` make.
std::string no_such_progress(const std::string& progress, const std::string& provider,
                             const std::vector<std::string>& with_it);

}  // namespace clustar::transport::ofi
