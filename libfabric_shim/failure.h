// Errors of libfabric's calls: provider, call, what libfabric says, and what helps.
#pragma once

#include <sys/types.h>

#include <string>

#include "transport/base/result.h"

namespace clustar::transport::ofi {

// `where`: the provider, and the domain where there is one. `code`: what the call gave back (negative), or an errno of
// libfabric (positive).
Error failure(const std::string& where, const char* call, ssize_t code);

}  // namespace clustar::transport::ofi
