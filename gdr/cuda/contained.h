// No exception leaves the module: it has a C++ runtime of its own.
#pragma once

#include <exception>
#include <string>

#include "transport/base/result.h"

namespace clustar::gdr::cuda {

template <class Call>
auto contained(Call&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, std::string("libclustar-cuda.so: ") + error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, "libclustar-cuda.so: an exception without a name");
  }
}

}  // namespace clustar::gdr::cuda
