// Sees what both ends of one connection do, and says what of it breaks the protocol's promises.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "mlt/core/endpoint.h"
#include "tests/sim/mlt_storm_plan.h"

namespace clustar::mlt::test {

// What the messages that a host receives may miss, reckoned from the workload alone: point 3 of the loss contract.
class StormLedgers {
 public:
  // A receive was posted for a message that may lose.
  void expect(const SendTerms& terms, std::uint64_t bytes);
  // Nullopt, or what is wrong with that much more missing.
  std::optional<std::string> miss(const SendTerms& terms, std::uint64_t bytes);
  // Nullopt, or where the core's ledgers differ from these.
  std::optional<std::string> compare(const LedgerBook& book) const;
  std::uint64_t missing_bytes() const { return missing_; }

 private:
  struct Sums {
    SendTerms terms;
    std::uint64_t eligible = 0;
    std::uint64_t missing = 0;
    std::uint64_t charged = 0;
  };
  struct Key {
    std::uint64_t communicator;
    std::uint32_t collective;
    bool exchange;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const SendTerms& terms) { return {terms.communicator, terms.collective, terms.exchange}; }

  std::map<Key, Sums> sums_;
  std::uint64_t missing_ = 0;
};

class Witness {
 public:
  using Report = std::function<void(const std::string&)>;
  // `flow`, `ledgers` (of the receiving host) and what `report` needs outlive it.
  Witness(const StormFlow& flow, StormLedgers& ledgers, Report report);

  // At the sender. Numbers are those of StormFlow::messages, ids the core's.
  void sent(std::uint32_t number, std::uint32_t id);
  // Answers what stands for the packet's payload.
  std::uint64_t transmitted(const DataHeader& header, const Transmit& transmit);
  void send_done(const SendDone& done, const Sender& sender);
  // At the receiver.
  void posted(std::uint32_t number, std::uint32_t receive);
  void arrived(const Placement& placement, std::uint32_t payload, std::uint64_t content);
  void rebuilt(const Rebuild& what);
  void unstaged(std::uint32_t receive, const Receiver::Staged& piece);
  void received(const ReceiveDone& done, const Receiver& receiver);

  bool over() const { return sends_done_ == flow_.messages.size() && receives_done_ == flow_.messages.size(); }
  StormRest rest() const;
  std::string unfinished() const;
  std::uint64_t missing_bytes() const { return missing_bytes_; }
  std::uint64_t rebuilt_packets() const { return rebuilt_; }
  std::uint64_t truncated() const { return truncated_; }
  // When all is over.
  void compare_ends();

 private:
  struct Message {
    bool sent = false;
    bool send_done = false;
    bool posted = false;
    bool done = false;
    bool truncated = false;
    PacketBitmap transmitted;  // at least once
    PacketBitmap placed;
    std::vector<std::uint32_t> missing, undelivered;  // packets, by either end
  };
  struct Content {
    std::uint64_t word;
    std::uint32_t length;
  };
  std::uint64_t content(std::uint32_t number, std::uint32_t offset) const;
  std::uint64_t parity(std::uint32_t number, std::uint32_t index) const { return ~content(number, index); }
  void violate(std::uint32_t number, const std::string& what) const;
  bool cut(std::uint32_t number) const;  // ends at once, because its receive is too short
  void place(std::uint32_t number, std::uint32_t offset, std::uint32_t length, std::uint64_t word);
  void check_missing(std::uint32_t number, const ReceiveDone& done, const Receiver& receiver);
  void check_loss(std::uint32_t number, const ReceiveDone& done);
  bool may_lose(const StormMessage& message) const;

  const StormFlow& flow_;
  StormLedgers& ledgers_;
  Report report_;
  std::vector<Message> messages_;
  std::vector<std::uint32_t> by_id_;  // of the sender's messages, from first_id_
  std::uint32_t first_id_ = 0;
  std::unordered_map<std::uint32_t, std::uint32_t> receives_;  // those that are not done -> number
  std::unordered_map<std::uint64_t, Content> staged_;          // by buffer and offset
  std::unordered_map<std::uint32_t, std::uint64_t> parity_;    // by buffer
  std::uint64_t rebuilt_ = 0;
  std::size_t sends_done_ = 0;
  std::size_t receives_done_ = 0;
  std::uint64_t missing_bytes_ = 0;
  std::uint64_t truncated_ = 0;
};

}  // namespace clustar::mlt::test
