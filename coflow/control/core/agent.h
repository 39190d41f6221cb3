// An agent: one NIC of one process, towards its coordinators. Pure: its driver connects, sends and closes as it
// says, and tells it the time.
//
//   kAlone -> kConnecting -> kJoining -> kServed          by the next of the addresses after each failure, more and
//   more
//      ^----------------------------------------'         seldom; the first one is the primary
//
// An order counts until its lease ends, whatever becomes of the connection. Then nothing has a place any more, and the
// host orders alone, until the next order.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "coflow/control/core/messages.h"
#include "transport/base/rng.h"
#include "transport/base/time.h"

namespace clustar::coflow::control {

struct AgentOptions {
  Hello hello{};                                      // `seen` is the agent's business
  std::size_t addresses = 1;                          // of coordinators, > 0
  Duration connect_within = std::chrono::seconds(2);  // and be welcome
  Duration least_pause = std::chrono::milliseconds(100);
  Duration most_pause = std::chrono::seconds(5);
};

class Agent {
 public:
  enum class State : std::uint8_t { kAlone, kConnecting, kJoining, kServed };
  struct Connect {
    std::size_t address = 0;
  };
  struct Send {
    Message message{};
  };
  struct Close {};
  using Action = std::variant<Connect, Send, Close>;

  struct Counters {
    std::uint64_t orders = 0;
    std::uint64_t stale = 0;    // orders older than one that it had: another coordinator's
    std::uint64_t lost = 0;     // connections that had been welcome
    std::uint64_t expired = 0;  // leases
  };

  Agent(const AgentOptions& options, std::uint64_t seed, TimePoint now);

  void on_connected(TimePoint now);
  // Refused, reset, wrong key, or the other end closed it; `why` is for people. Not after Close.
  void on_closed(const std::string& why, TimePoint now);
  void on_message(const Message& message, TimePoint now);
  // All classes that there are. To be called once in interval(), or where something began.
  void on_classes(std::span<const ClassReport> classes);
  void on_timeout(TimePoint now);
  std::optional<TimePoint> next_timeout() const;
  std::optional<Action> poll();
  // It ends: the coordinator is told, if there is one.
  void stop();

  State state() const { return state_; }
  // From one report to the next.
  Duration interval() const { return interval_; }
  // Some coordinator's order counts.
  bool ordered() const { return ordered_; }
  // Of a class; null: it has none.
  const Placed* place_of(const ClassKey& key) const;
  const std::map<ClassKey, Placed>& places() const { return places_; }
  // Grows when places(), or ordered(), are others.
  std::uint64_t changes() const { return changes_; }
  // Classes that are to begin their next iteration later; each once.
  std::vector<Placed> take_holds();
  Version seen() const { return seen_; }
  const Counters& counters() const { return counters_; }
  // For the log. Of an outage one line is bad: where the lease ends, or the first try fails. What is said once is not
  // said again before a coordinator is found.
  struct News {
    std::string line{};
    bool bad = false;
  };
  std::optional<News> news();

 private:
  void retry(TimePoint now, bool seldom);
  void lose(const std::string& why, TimePoint now, bool seldom);
  void on_order(const Order& order, TimePoint now);
  void expire();
  void say(const std::string& line, bool bad);

  const AgentOptions options_;
  Rng rng_;
  State state_ = State::kAlone;
  std::size_t address_ = 0;
  Duration pause_;
  Duration interval_;
  Duration lease_{0};
  TimePoint try_at_;
  TimePoint until_{};  // of kConnecting and kJoining
  TimePoint heard_{};  // welcome, or an order that counts
  bool ordered_ = false, stopped_ = false;
  TimePoint lease_ends_{};
  Version seen_{};
  int quiet_ = 0;  // calls of on_classes() in a row without anything to say
  std::map<ClassKey, ClassReport> told_;
  std::map<ClassKey, Placed> places_;
  std::vector<Placed> holds_;
  std::uint64_t changes_ = 0;
  int in_vain_ = 0;  // connections in a row that were welcome, and of which no order counted
  std::deque<Action> out_;
  std::deque<News> news_;
  std::set<std::string> said_;  // since a coordinator was found
  bool complained_ = false;
  bool told_of_deadline_ = false;
  Counters counters_;
};

}  // namespace clustar::coflow::control
