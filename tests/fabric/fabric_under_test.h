// A fabric of the test's own name, removed at the end of each test whatever happened.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <string>

#include "bench/fabric/fabric.h"

namespace clustar::bench::fabric {

class FabricTest : public ::testing::Test {
 protected:
  void SetUp() override;     // skips with the reason where fabrics cannot be made
  void TearDown() override;  // removes, and checks that nothing is left

  FabricSpec spec(int hosts, std::uint64_t rate_bps) const;
  Fabric must_up(const FabricSpec& spec, UpReport* report = nullptr) const;
  // No namespace, no half namespace and no state file of this name.
  bool nothing_left() const;

  const std::string name_ = "t" + std::to_string(getpid());
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
// Runs of what measures lines. A virtual machine whose processors are taken away by its host cannot see that, and falls
// behind a line for a second or two; what is wrong is wrong again.
inline constexpr int kPatience = 3;
// Waits for it, at most 10 s.
bool eventually(const std::function<bool()>& condition);
// False while there is such a process, but for one that only waits to be taken note of.
bool has_ended(int pid);
// By the shell; fails the test when it fails.
void shell(const std::string& command);

sockaddr_in address_of_host(int host, std::uint16_t port);
// A UDP socket bound to `port` of `host`, on which a receive waits 2 s at most; the caller closes it.
int udp_receiver(const Fabric& fabric, int host, std::uint16_t port);

// Runs `body` on a thread of its own on that host, and waits.
void on_host(const Fabric& fabric, int host, const std::function<void()>& body);

}  // namespace clustar::bench::fabric
