// How a part of the core refuses its options: an exception while it is constructed, never later.
#pragma once

#include <stdexcept>

namespace clustar::mlt {

// `rule` names the option and the values that are allowed.
inline void require_option(bool holds, const char* rule) {
  if (!holds) throw std::invalid_argument(rule);
}

}  // namespace clustar::mlt
