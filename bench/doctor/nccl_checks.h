// Would NCCL take the plugin, and with what? Rules of NCCL 2.28.9. Pure.
#pragma once

#include <string>
#include <vector>

#include "bench/doctor/check.h"
#include "bench/doctor/nccl_facts.h"

namespace clustar::bench::doctor {

std::vector<Check> nccl_checks(const NcclFacts& facts);

// "tcp" of "clustar 0.1.0: transport tcp, devices: ..."; empty where no line says so.
std::string transport_of(const Banner& banner);
// "0.1.0" of the same.
std::string version_of(const Banner& banner);

}  // namespace clustar::bench::doctor
