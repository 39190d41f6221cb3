// What is said of these facts, with the command that mends what lacks. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/doctor/check.h"
#include "bench/doctor/dpdk_facts.h"

namespace clustar::bench::doctor {

std::vector<Check> dpdk_checks(const DpdkFacts& facts);
std::string dpdk_text(const std::vector<Check>& checks);

}  // namespace clustar::bench::doctor
