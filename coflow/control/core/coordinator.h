// The coordinator: hears of classes, and tells all agents one order. Pure: connections are numbers, time is an
// argument.
//
// Soft state: all that it knows came in the reports of connections that are open, so that one that was restarted knows
// as much as before after one interval. A term is of one coordinator at one time: it begins above all terms that it
// heard of, and who hears of two orders obeys the later one.
//
//    kWaiting --(standby: its primary was silent for a lease)--> kInCharge --(the primary is back)--> kWaiting
//
// A primary is in charge from the beginning.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "coflow/control/core/messages.h"
#include "coflow/control/core/order.h"
#include "coflow/control/core/ports.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

struct CoordinatorOptions {
  Duration interval = std::chrono::milliseconds(100);  // from an order to the next
  int lease_intervals = 3;                             // an order is good for so many
  int silent_leases = 10;                              // an agent that says nothing for so many is gone
  OrderPolicy policy = OrderPolicy::kTurns;
  bool shifts = true;            // hold periodic jobs back once, so that they take turns by themselves
  std::uint64_t first_term = 1;  // larger than those of earlier coordinators, as far as is known
  std::string standby_of{};      // address of the primary; empty: this one is it
  std::size_t most_agents = 16 * 1024;
  std::size_t most_classes = 64 * 1024;
  std::uint64_t bytes_per_second = 1'250'000'000;  // of a port whose agent does not know its own
  std::map<std::string, double> tenants{};         // their weights; others have 1
  std::map<std::string, std::uint64_t> caps{};     // of tenants: bytes per second of each NIC, > 0
  Topology topology{};

  Duration lease() const { return lease_intervals * interval; }
};

class Coordinator {
 public:
  using Link = std::uint64_t;
  struct Outgoing {
    Link link = 0;
    Message message{};
    bool last = false;  // close the connection behind it
  };

  struct Counters {
    std::uint64_t rounds = 0;  // orders computed
    std::uint64_t reports = 0;
    std::uint64_t orders = 0;     // messages with places
    std::uint64_t renewals = 0;   // and without
    std::uint64_t refused = 0;    // connections
    std::uint64_t too_fast = 0;   // reports that came too fast, and were not heard
    std::uint64_t too_many = 0;   // classes that were not heard, beyond most_classes
    std::uint64_t holds = 0;      // classes whose next iteration was to begin later
    std::uint64_t takeovers = 0;  // times that it came to be in charge
  };

  Coordinator(const CoordinatorOptions& options, TimePoint now);

  void on_message(Link link, const Message& message, TimePoint now);
  void on_closed(Link link, TimePoint now);
  // Standby: the primary said something, of its term.
  void on_primary(std::uint64_t term, TimePoint now);
  void on_timeout(TimePoint now);
  std::optional<TimePoint> next_timeout() const;
  std::optional<Outgoing> poll();
  // No more agents: all are told.
  void stop(TimePoint now);

  bool in_charge() const { return in_charge_; }
  std::uint64_t term() const { return term_; }
  const Counters& counters() const { return counters_; }

  // What people are shown.
  struct ClassView {
    ClassKey key{};
    std::string tenant{};
    std::uint8_t urgency = 0, level = 0;
    std::uint32_t place = 0;
    std::uint32_t agents = 0, waiting = 0;             // that know it; where something of it is queued
    std::uint64_t in_all = 0, left = 0, attained = 0;  // sums over the agents
    Duration period{0};
    std::uint64_t iterations = 0;  // that ended, as seen from here
    Duration latest{0};            // how long the latest one that ended had something to send
    Duration deadline{0};          // 0: none
    Promise promise = Promise::kNone;
    std::uint64_t in_time = 0, late = 0;  // of the iterations
    std::string lags{};  // the host whose part is the last to end, where others are done for an interval
  };
  std::vector<ClassView> classes(TimePoint now) const;  // in their order
  struct AgentView {
    std::string host{}, nic{}, tenant{};
    std::uint32_t job = 0, classes = 0;
    std::uint64_t bytes_per_second = 0, attained = 0;
    Duration silent{0};  // since it was last heard
  };
  std::vector<AgentView> agents(TimePoint now) const;

 private:
  // What an iteration of one agent's needs at each port: seen best at its beginning, when most of it is queued.
  struct PartClaim {
    std::uint64_t in_all = 0, seen = 0;  // bytes; those that were left then
    std::vector<BssiItem::Load> loads{};
  };
  struct Class {
    std::uint64_t came = 0;
    std::uint32_t place = 0;
    std::uint8_t level = 0;
    std::unordered_map<Link, ClassReport> parts{};
    std::uint32_t waiting = 0;  // parts of which something is queued
    TimePoint began{};          // when the first of these was
    TimePoint alone_at{};       // when only one was left
    TimePoint phase_at{};       // when its latest iteration began, as its agents say, if its period is known
    std::uint64_t iterations = 0;
    Duration latest{0};
    TimePoint held_at = TimePoint::min();
    std::uint32_t hold_us = 0;  // to be told with the next order
    Duration deadline{0};       // the shortest of its parts'
    Promise promise = Promise::kNone;
    std::uint64_t in_time = 0, late = 0;
    std::unordered_map<Link, PartClaim> claims{};  // of its parts, as far as was seen
  };
  struct Told {
    std::uint32_t place = 0;
    std::uint8_t level = 0;
    std::uint64_t cap = 0;
    Promise promise = Promise::kNone;
    bool operator==(const Told&) const = default;
  };
  struct Agent {
    Hello hello{};
    std::uint32_t port = 0;
    std::map<ClassKey, Told> told{};  // by class that it has
    TimePoint heard{}, told_at{}, refilled{};
    double reports_left = 0;
    std::uint32_t too_fast = 0;  // reports in a row
    std::uint64_t attained = 0;
    TimePoint reported_at{};
    bool standby = false;
    bool reported = false;
    bool fresh = true;  // it has had no order of this term
  };

  void on_hello(Link link, const Hello& hello, TimePoint now);
  void on_report(Link link, Agent& agent, const Report& report, TimePoint now);
  bool may_report(Agent& agent, TimePoint now) const;
  void hear(Link link, Agent& agent, const ClassReport& report, TimePoint now);
  void count_waiting(Class& one, bool before, bool after, TimePoint now);
  void drop_part(Link link, const ClassKey& key, TimePoint now);
  void forget(Link link, TimePoint now);
  void refuse(Link link, RefusalReason reason, const std::string& text, TimePoint now);
  void take_charge(TimePoint now);
  void step_down(TimePoint now);
  void raise_term(std::uint64_t seen);
  void drop_silent(TimePoint now);
  void make_order(TimePoint now);
  void learn_claims(Class& one);
  void make_promises(const std::vector<Class*>& classes, std::vector<ClassLoad>& loads, TimePoint now);
  void count_capped();
  std::uint64_t cap_of(Link link, const Agent& agent, const Class& one) const;
  ClassLoad load_of(const ClassKey& key, const Class& one);
  static void give_levels(const std::vector<Class*>& ordered, const std::vector<double>& seconds);
  void count_service();
  void shift(TimePoint now);
  void tell_all(TimePoint now);
  void tell(Link link, Agent& agent, TimePoint now);
  double weight_of(const Class& one) const;

  const CoordinatorOptions options_;
  bool in_charge_ = false, stopping_ = false;
  std::uint64_t term_;
  std::uint64_t number_ = 0;
  std::uint64_t came_ = 0;
  TimePoint next_round_;
  TimePoint primary_heard_;
  bool dirty_ = false;
  std::map<ClassKey, Class> classes_;
  std::unordered_map<Link, Agent> agents_;
  std::unordered_map<std::uint64_t, Link> by_agent_;
  std::map<std::uint32_t, std::uint32_t> jobs_;  // agents of each
  Ports ports_;
  JobService service_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, double> served_;  // by job and port, seconds since the last order
  std::map<std::pair<std::uint32_t, std::string>, std::uint64_t> capped_;  // by port and tenant: parts that wait
  std::deque<Outgoing> out_;
  Counters counters_;
};

}  // namespace clustar::coflow::control
