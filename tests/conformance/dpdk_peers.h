// Processes with a port of DPDK each, on one wire. The program itself never begins DPDK: its children do, which a
// process that has begun it could not fork.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "tests/conformance/process_peer.h"
#include "transport/api/transport.h"

namespace clustar::transport::conformance {

// What two processes open: each a device with its address.
struct Wire {
  std::string first;
  std::string second;
};

Wire over_veth();   // net_af_packet on a pair of virtual interfaces, f0 and f1
Wire over_memif();  // the first is the server

class DpdkPeers : public ::testing::Test {
 protected:
  // Skips without a network namespace, or where DPDK cannot begin.
  void SetUp() override;
  void TearDown() override;

  // In a child: MLT over the device. Control connections run over loopback, so that a link that is down takes none with
  // it. Null, with the test failed, if there is none.
  static std::unique_ptr<Transport> create(const std::string& device, const std::string& engine = "auto");
  // `from` accepts, and is reached by `to`.
  static void join(Peer& from, Peer& to) { to.say(from.hear<Handle>()); }
  // As poll_until, but leaves the processor to the children.
  static bool happens(const std::function<bool()>& what);
};

}  // namespace clustar::transport::conformance
