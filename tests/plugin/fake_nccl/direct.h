// The plugin's parts linked into the test instead of loaded: fast enough for a million messages. The wire carries
// nothing; it asks the plugin what it would send with each message and compares that with the oracle.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/profiler/profiler.h"
#include "tests/plugin/fake_nccl/core.h"
#include "tests/plugin/fake_nccl/oracle.h"
#include "transport/base/rng.h"

namespace clustar::tests::fake_nccl {

class DirectPort final : public ProfilerPort {
 public:
  DirectPort(nccl_plugin::Profiler& profiler, std::shared_ptr<const nccl_plugin::LossPolicy> policy,
             const Communicator& comm, int version);
  ~DirectPort() override;  // closing twice is allowed
  void* context() const { return context_; }
  int version() const override { return version_; }
  int mask() const override { return mask_; }
  void start(void** handle, const Event& event) override;
  void stop(void* handle) override;
  void record(void* handle, int state) override;

 private:
  nccl_plugin::Profiler& profiler_;
  void* context_ = nullptr;
  int version_;
  int mask_ = 0;
};

// What the checks of many messages came to.
struct Tally {
  std::uint64_t messages = 0;
  std::uint64_t identified = 0;
  std::uint64_t should_be_identified = 0;
  std::uint64_t phases = 0;  // compared
  std::uint64_t lossy = 0;
  std::uint64_t lossy_sends = 0;
  std::uint64_t empty = 0;       // of 0 bytes
  std::bitset<17> ring_sizes;    // n of what had a phase to compare
  std::bitset<17> paired_sizes;  // and two ranks on each node
  std::uint32_t most_loops = 0;
  std::uint32_t most_channels = 0;
  std::array<std::uint64_t, nccl_plugin::kReasons> reasons{};
  std::uint64_t failures = 0;
  std::vector<std::string> first_failures;

  void fail(const std::string& what);
};

class CheckingWire final : public Wire {
 public:
  struct Setup {
    const PolicyTruth* truth = nullptr;
    const nccl_plugin::LossPolicy* policy = nullptr;
    Communicator comm;
    nccl_plugin::ChannelFacts channel;
    int profiler_version = 5;
    bool has_guard = true;            // net v11 and later
    bool answers = true;              // NCCL 2.27 and later
    bool pools_may_be_short = false;  // identified or not, never wrongly
    bool critical = false;            // the user says that the model needs its gradients
    std::uint32_t busy_percent = 5;
    std::uint32_t wrong_guard_percent = 0;
  };
  CheckingWire(const Setup& setup, Tally& tally, Rng& rng);

  bool has_net_attr() const override { return setup_.has_guard; }
  void set_net_attr(const nccl_abi::NetAttr& attr) override;
  bool isend(const ProxyOp& op, std::uint32_t transfer, void* phandle) override;
  bool test(const ProxyOp& op) override;

 private:
  void check_identity(const ProxyOp& op, const Expectation& expected, const nccl_plugin::MessageQuery& query,
                      const Transfer& truth);
  void check_decision(const ProxyOp& op, const Expectation& expected, const nccl_plugin::MessageFlow& flow);
  void check_number(const ProxyOp& op, const transport::MessageIdentity& identity);
  void check_ledger_number(const ProxyOp& op, std::uint32_t number);
  std::string describe(const ProxyOp& op) const;

  Setup setup_;
  Tally& tally_;
  Rng& rng_;
  WireTruth wire_;
  std::uint32_t transfer_ = 0;  // being checked
  // Local numbers and ledger numbers are the plugin's choice; one launch has one, and no other launch has the same.
  // Sends to different ranks share them: `peer` is -1 but for sends.
  using Number = std::tuple<int, int, std::uint64_t>;  // function or 0, peer, number
  std::map<Number, std::uint64_t> local_;              // -> launch
  std::map<std::uint64_t, Number> local_of_;
  std::map<Number, std::uint64_t> ledger_;  // -> launch
  std::map<std::uint64_t, Number> ledger_of_;
};

}  // namespace clustar::tests::fake_nccl
