// What a tolerant run does without: --tolerant, as text and as numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paraexpress/tolerant/tolerant.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// "q=3,deadline=20ms,staleness=8,p=1%": each key at most once, in any order; what is left out is as Tolerance has it.
// Errors say what is allowed.
Result<paraexpress::tolerant::Tolerance> parse_tolerance(std::string_view text);
// All of it, in the same form.
std::string to_text(const paraexpress::tolerant::Tolerance& tolerance, int ranks);

}  // namespace clustar::bench::trainer
