// What agents and coordinators tell each other, and how it looks on the wire. Pure.
//
// A frame, everything big-endian:
//
//    0                   1                   2                   3
//    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//   +---------------------------------------------------------------+
//   |          length of what follows, 1 .. kMostFrame              |
//   +---------------+-----------------------------------------------+
//   |     type      |  body ...                     (tag, session.h) |
//   +---------------+-----------------------------------------------+
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "transport/base/time.h"

namespace clustar::coflow::control {

inline constexpr std::size_t kMostFrame = 128 * 1024;  // bytes, without the length
inline constexpr std::size_t kMostClasses = 1024;      // of an agent, and in an order
inline constexpr std::size_t kMostReported = 128;      // of them in one report
inline constexpr std::size_t kMostPeers = 64;          // of a class in a report
inline constexpr std::size_t kMostAddresses = 8;       // of an agent's host
inline constexpr std::size_t kMostName = 64;           // bytes
inline constexpr std::size_t kMostText = 200;          // bytes
inline constexpr std::uint8_t kUnknownFunction = 0xff;

// A class of coflows, equal on all hosts: what one communicator sends, iteration after iteration (or a function of it,
// for agents that can tell what each has to come), or one coflow of which nothing else is known. 0 as group: all that a
// job's processes send without saying what it is.
struct ClassKey {
  std::uint32_t job = 0;
  std::uint64_t group = 0;                   // NCCL's commId, or the coflow's id
  std::uint8_t function = kUnknownFunction;  // ncclFunc_t

  auto operator<=>(const ClassKey&) const = default;
};

// Of which order something is. Terms grow with coordinators, numbers with the orders of one: the later is the larger.
struct Version {
  std::uint64_t term = 0;
  std::uint64_t number = 0;

  auto operator<=>(const Version&) const = default;
};

// A term beyond is a lie, that would leave no room for later ones.
inline constexpr std::uint64_t kMostTerm = std::uint64_t{1} << 62;

enum class Role : std::uint8_t { kAgent = 0, kStandby = 1 };

// The first of a connection.
struct Hello {
  Role role = Role::kAgent;
  std::uint64_t agent = 0;  // random; the same in all connections of a process and NIC
  std::uint32_t job = 0;
  std::uint32_t weight = 1;            // of the job, 1 .. 1000
  std::uint64_t bytes_per_second = 0;  // of the NIC's line; 0: unknown
  Version seen{};                      // the latest order, of whichever coordinator
  std::string tenant{};
  std::string host{};                      // its name, for people
  std::string nic{};                       // with the host: the port
  std::vector<std::uint32_t> addresses{};  // numbers by which other hosts' reports name it (PeerLoad)

  bool operator==(const Hello&) const = default;
};

struct PeerLoad {
  std::uint32_t peer = 0;   // a number of that host: one of Hello::addresses of its agent
  std::uint64_t bytes = 0;  // queued to it

  bool operator==(const PeerLoad&) const = default;
};

// What one agent knows of a class.
struct ClassReport {
  ClassKey key{};
  std::uint8_t urgency = 2;       // transport::Urgency
  bool waits = false;             // something of it is queued
  bool gone = false;              // it is over: forget it. All else counts for nothing
  bool repeats = false;           // it will come again, as large
  std::uint64_t in_all = 0;       // bytes of an iteration or a coflow on this NIC; 0: unknown
  std::uint64_t left = 0;         // of them, not sent
  std::uint64_t attained = 0;     // bytes that this NIC sent of it since the agent knows it
  std::uint32_t period_us = 0;    // from the start of an iteration to that of the next; 0: unknown
  std::uint32_t since_us = 0;     // since the latest one began, if the period is known
  std::uint32_t deadline_us = 0;  // after it began all of it is to be sent; 0: no matter when
  std::vector<PeerLoad> peers{};

  bool operator==(const ClassReport&) const = default;
};

// What has changed since the agent's last one; the first of a connection has all.
struct Report {
  std::vector<ClassReport> classes{};

  bool operator==(const Report&) const = default;
};

// The coordinator takes the agent, or the standby: it is heard from once in `interval`, whatever happens.
struct Welcome {
  std::uint64_t term = 0;
  Duration interval{0};
  Duration lease{0};

  bool operator==(const Welcome&) const = default;
};

// What becomes of a class's deadline.
enum class Promise : std::uint8_t {
  kNone = 0,     // it has none, or its size is not known yet
  kGiven = 1,    // it goes before those that have none, the earliest first
  kRefused = 2,  // the ports that it needs are promised to others: it goes as those that have none
};
const char* to_string(Promise promise);

struct Placed {
  ClassKey key{};
  std::uint32_t place = 0;    // in the total order, 0 goes first
  std::uint8_t level = 0;     // of few: what switches are told
  std::uint32_t hold_us = 0;  // once: the class's next iteration begins so much later
  std::uint64_t cap = 0;      // bytes per second that this NIC may send of it; 0: what the line carries
  Promise promise = Promise::kNone;

  bool operator==(const Placed&) const = default;
};

// Good for `lease` after it came. `all`: what is not in it has no place any more; otherwise only what has changed.
struct Order {
  Version version{};
  Duration lease{0};
  bool all = false;
  std::vector<Placed> classes{};

  bool operator==(const Order&) const = default;
};

enum class RefusalReason : std::uint8_t {
  kStandby = 0,   // another coordinator is alive: `address`
  kFull = 1,      // more agents than it may have
  kTooFast = 2,   // the agent said more than it may
  kNonsense = 3,  // a message that makes none
  kStopping = 4,  // the coordinator ends
  kSameName = 5,  // another connection of the same agent took its place
  kSilent = 6,    // nothing was heard for long
};
const char* to_string(RefusalReason reason);

// The last of a connection.
struct Refusal {
  RefusalReason reason = RefusalReason::kNonsense;
  std::string text{};
  std::string address{};  // HOST:PORT of who is in charge; empty: unknown

  bool operator==(const Refusal&) const = default;
};

struct Bye {  // an agent ends: it is no loss
  bool operator==(const Bye&) const = default;
};

using Message = std::variant<Hello, Report, Welcome, Order, Refusal, Bye>;

// Type and body. Longer names and lists than are allowed are cut.
std::vector<std::byte> serialize(const Message& message);
// Nothing: it is no message, or one with numbers out of their ranges.
std::optional<Message> parse(std::span<const std::byte> frame);

}  // namespace clustar::coflow::control
