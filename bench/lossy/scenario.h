// The situations in which the arms are compared: a fabric, what its switch loses, a pattern of messages. Values only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// A step at this part of a port's buffer, for all classes, as RoCE fabrics mark (DCQCN). Only who asks for it is
// marked.
inline constexpr double kMarkAbove = 0.3;

// What the switch loses of the packets that leave by the ports at a place (see bench/fabric/places.h).
struct LossAt {
  std::string place;
  fabric::LossRules rules;
};

// A ratio that is held against a limit, in the words of the plan.
struct BarSpec {
  enum class Kind : std::uint8_t {
    kP99OverP50,    // of `arm`
    kP99OverIdeal,  // of `arm`
    kP99Over,       // p99 of `other` over p99 of `arm`: how many times better `arm` is
    kCpuOver,       // CPU seconds per Gbit of `arm` over those of `other`: the machine's when nobody else used it
    kShare,         // the smallest share of a job in a round over the fair one, of `arm`, which has several jobs
  };
  Kind kind;
  std::string arm;
  std::string other;
  double limit = 1;
  bool at_least = false;  // otherwise at most
};

// Host 0 receives, the hosts from 1 on send; at an arm of several jobs ("mlt-p0+tcp-cubic") each host is the sender of
// one.
struct Scenario {
  std::string name;
  std::string title;
  std::string question;
  fabric::FabricSpec fabric;
  std::vector<LossAt> losses = {};  // from the first round of an arm on
  std::size_t message_bytes = 0;
  int senders = 1;
  int messages = 1;  // of each sender in a round
  int window = 1;    // of them at a time
  int rounds = 1000;
  int quick_rounds = 40;
  int blocks = 10;  // in turns with those of the other arms, in an order that changes from block to block
  // Each block has connections of its own: their ports choose the paths of an arm that uses one.
  bool fresh_connections = false;
  double expected_ms = 0;  // of a round, for the estimate of how long it takes
  std::vector<std::string> arms;
  std::vector<std::string> named_arms{};  // that run only where they are named
  std::vector<std::string> quick_arms;
  std::vector<BarSpec> bars;
  std::vector<std::string> notes;

  std::size_t round_bytes() const { return message_bytes * static_cast<std::size_t>(senders * messages); }
};

// Called `name`, with everything filled in and marking; and the same once packets are lost. Errors: as
// fabric::checked().
Result<fabric::FabricSpec> clean_fabric(const Scenario& scenario, const std::string& name);
Result<fabric::FabricSpec> lossy_fabric(const Scenario& scenario, const std::string& name, std::uint64_t seed);
// What puts `loss` among the rules of a port.
Result<void> add_loss(const LossAt& loss, std::uint64_t seed, fabric::PortRules& rules);

// Those that a run goes through; `full` adds situations beyond the bars.
std::vector<Scenario> scenarios(bool full);
// The ones that are named, in the order of scenarios(); empty = all. kInvalidArgument names what there is.
Result<std::vector<Scenario>> choose_scenarios(const std::vector<std::string>& names, bool full);
// The jobs of an arm: "a+b" is a and b at the same time.
std::vector<std::string> jobs_of(const std::string& arm);
// Leaves the arms one of whose jobs is in `names`; all when that is empty.
std::vector<std::string> choose_arms(const std::vector<std::string>& arms, const std::vector<std::string>& names);

// Frames of one message at layer 2 without FCS, with MLT's headers over IPv4 and UDP: what the port has to carry.
std::uint64_t mlt_wire_bytes(std::size_t message_bytes, int mtu);
// Milliseconds that the port needs for a round without loss, and `one_way_ms` on top.
double ideal_ms(const Scenario& scenario, double one_way_ms);

}  // namespace clustar::bench::lossy
