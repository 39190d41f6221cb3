// Settings of one interface of the calling thread's network namespace, by ioctl (what `ip addr` and `ethtool` do).
#pragma once

#include <string>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

Result<void> set_up(const std::string& interface);
Result<void> set_address(const std::string& interface, const std::string& address, int prefix_length);
std::string address_of(const std::string& interface);  // "" without one
// /proc/sys/net/ipv4/NAME of the calling thread's namespace: "" where the kernel has none; write says whether it could.
std::string read_ipv4_setting(const std::string& name);
bool write_ipv4_setting(const std::string& name, const std::string& value);
// No IPv6 address of its own on interfaces that are made here from now on: nobody speaks unasked.
void keep_new_interfaces_silent();

// Packets that stand for many (TSO, GSO, UDP segmentation at a sender; GRO at a receiver).
enum class Merging { kSending, kReceiving };
// The device's features that make such packets and are on, by ethtool's names.
Result<std::vector<std::string>> merging_features(const std::string& interface, Merging direction);
// Turns them off; an error names those that stay on.
Result<void> forbid_merging(const std::string& interface, Merging direction);

}  // namespace clustar::bench::fabric
