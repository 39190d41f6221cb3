// A host with DPDK and one with kernel UDP on one wire that loses packets: they train, and stay alike bit for bit. DPDK
// has the interface of its host beside the kernel, with the kernel's address.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar {
namespace {

const std::string kClustar = CLUSTAR_EXECUTABLE;

// Of a driver of DPDK.
class DpdkPair : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to make hosts";
    const auto made = tests::run_command(kClustar + " fabric up --hosts 2 --rate 1G --loss 1% --name " + name_);
    if (made.status != 0) GTEST_SKIP() << "no fabric can be made here: " << made.text;
    const auto address = tests::run_command(on(0) + "ip -4 -o addr show eth0 | awk '{print $4}' | cut -d/ -f1");
    root_ = address.text.substr(0, address.text.find('\n')) + ":29517";
  }
  void TearDown() override {
    tests::run_command(kClustar + " fabric down --name " + name_);
    std::filesystem::remove(json_);
  }
  static std::string dpdk() {
    return std::string("CLUSTAR_IO=dpdk CLUSTAR_DPDK_HUGE_PAGES=no CLUSTAR_DPDK_DEVICES=") + GetParam() +
           "0,iface=eth0";
  }
  std::string on(int host) const {
    return kClustar + " fabric exec --name " + name_ + " " + std::to_string(host) + " -- ";
  }
  std::string rank(int number, const std::string& io) const {
    return on(number) + "env OMP_NUM_THREADS=1 CLUSTAR_TRANSPORT=mlt CLUSTAR_SOCKET_IFNAME=eth0 NCCL_DEBUG=INFO " + io +
           " timeout 50 " + kClustar + " train --model mlp --size 2 --rank " + std::to_string(number) + " --root " +
           root_ + data() + " --epochs 1 --no-progress" + more_ + (number == 0 ? " --json " + json_ : "");
  }
  // MNIST where its folder is named, as for the trainer's tests; otherwise digits that are made up.
  static std::string data() {
    const char* folder = std::getenv("CLUSTAR_TEST_MNIST");
    return folder != nullptr ? std::string(" --data ") + folder : " --examples 4000";
  }
  // How many bytes stayed missing.
  double expect_alike(const std::string& first, const std::string& second) {
    const auto done = tests::run_command("(" + rank(1, second) + " & other=$!; " + rank(0, first) +
                                         "; status=$?; wait $other && exit $status)");
    EXPECT_EQ(done.status, 0) << done.text;
    if (done.status != 0) return 0;
    EXPECT_NE(done.text.find(std::string(GetParam()) + "0"), std::string::npos) << "not by DPDK:\n" << done.text;
    const auto results = nlohmann::json::parse(std::ifstream(json_)).at("results");
    EXPECT_EQ(results.at("replicas_identical"), true);
    EXPECT_GT(results.at("bytes_sent").get<double>(), 1e7);
    return results.at("missing_bytes").get<double>();
  }

  const std::string name_ = "dpdk-" + std::to_string(::getpid());
  const std::string json_ = tests::temp_path("dpdk_pair", ".json");
  std::string root_;
  std::string more_;
};

TEST_P(DpdkPair, OneByDpdkOneByTheKernelTrainAlikeWhilePacketsAreLost) {
  EXPECT_EQ(expect_alike(dpdk(), "CLUSTAR_IO=udp"), 0);
}

TEST_P(DpdkPair, TheyDoSoWhereSomeMayStayMissing) {
  more_ = " --loss-tolerance 0.01";
  EXPECT_GT(expect_alike("CLUSTAR_LOSS_WARMUP=0 " + dpdk(), "CLUSTAR_LOSS_WARMUP=0 CLUSTAR_IO=udp"), 0);
}

TEST_P(DpdkPair, BothByDpdkTrainAlikeWhilePacketsAreLost) { EXPECT_EQ(expect_alike(dpdk(), dpdk()), 0); }

INSTANTIATE_TEST_SUITE_P(Drivers, DpdkPair, ::testing::Values("net_af_packet", "net_af_xdp"),
                         [](const auto& driver) { return std::string(driver.param); });

}  // namespace
}  // namespace clustar
