// What is said of a virtual device of DPDK: rights, and the interface of the kernel that it names. Pure.
#pragma once

#include "bench/doctor/check.h"
#include "bench/doctor/dpdk_facts.h"
#include "transport/io/dpdk/core/device_spec.h"

namespace clustar::bench::doctor {

Check check_virtual(const DpdkFacts& facts, const transport::io::dpdk::DeviceSpec& spec);

}  // namespace clustar::bench::doctor
