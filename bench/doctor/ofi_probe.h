// What libfabric says of this machine. It is asked through libclustar-ofi.so, so that the doctor also runs where the
// library is what is missing.
#pragma once

#include <string>

namespace clustar::bench::doctor {

// A sentence. `forced`: CLUSTAR_OFI_PROVIDER, or empty. Empty: the module is not there.
std::string ask_libfabric(const std::string& forced);

}  // namespace clustar::bench::doctor
