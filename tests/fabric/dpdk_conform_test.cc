// NCCL's rules over DPDK: `clustar conform` on two ports that a wire joins (net_af_packet on a pair of virtual
// interfaces), from one to the other, within a process and between two.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/conformance/own_network.h"
#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar {
namespace {

using transport::conformance::enter_own_network;
using transport::conformance::shell;

// Little memory, for many processes begin DPDK here.
constexpr const char* kSettings =
    "CLUSTAR_TRANSPORT=mlt CLUSTAR_IO=dpdk CLUSTAR_DPDK_HUGE_PAGES=no CLUSTAR_DPDK_MEMORY_MB=96 "
    "CLUSTAR_DPDK_DESCRIPTORS=256 CLUSTAR_DPDK_QUEUES=2 CLUSTAR_CONTROL_IFNAME=lo";
constexpr const char* kDevices = "net_af_packet0,iface=c0@10.8.0.1/24;net_af_packet1,iface=c1@10.8.0.2/24";
// Those that a kind of packets, or a second process, may break; all of them take a minute. Never among them:
// close.finalize_clean, which asks that no thread stays; DPDK's does until the process ends.
constexpr const char* kChecks =
    "contract.two_processes,contract.busy,contract.many_connections,threads.parallel,handshake.junk_during_transfer,"
    "death.receiver_survives,death.others_unharmed,death.frozen_peer,close.inflight_send,reload.again";
constexpr int kCount = 10;

TEST(DpdkConform, TwoPortsOnAWireKeepTheRulesOfNccl) {
  if (const auto own = enter_own_network(); !own) GTEST_SKIP() << own.error().message;
  // The numbers: as in tests/conformance/dpdk_peers.cc.
  const auto made =
      shell("ip link add c0 index 16 type veth peer name c1 index 16400 && ip link set c0 up && ip link set c1 up");
  if (!made) GTEST_SKIP() << made.error().message;
  const std::string json = tests::temp_path("dpdk_conform", ".json");
  const auto done = tests::run_command(std::string("env ") + kSettings + " CLUSTAR_DPDK_DEVICES='" + kDevices + "' " +
                                       CLUSTAR_EXECUTABLE + " conform --plugin " + CLUSTAR_PLUGIN +
                                       " --version 12 --connect-device 1 --freeze 1 --death-bound 3 --only '" +
                                       kChecks + "' --json " + json);
  ASSERT_EQ(done.status, 0) << done.text;
  const auto results = nlohmann::json::parse(std::ifstream(json)).at("results");
  std::filesystem::remove(json);
  EXPECT_EQ(results.at("passed"), kCount) << "some were skipped, or are called something else:\n" << done.text;
}

}  // namespace
}  // namespace clustar
