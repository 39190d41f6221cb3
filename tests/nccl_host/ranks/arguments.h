#pragma once

#include <cstddef>
#include <string>

#include "tests/nccl_host/ranks/ranks.h"

namespace nccl_host {

// Prints the message and ends the process with status 2.
[[noreturn]] void WrongUsage(const char* program, const std::string& message);

// A number with K, M or G; WrongUsage where it is none or out of bounds.
size_t NumberOrExit(const char* program, const std::string& option, const std::string& text, size_t least, size_t most);

// Takes --ranks, --timeout, --launch, and what launched ranks get. False: the option is another one.
bool TakeRankOption(RankOptions& options, const std::string& option, const std::string& text);

}  // namespace nccl_host
