// A connection on which one peer sends to an endpoint. What arrives is told to the desk in the order in which it was
// sent.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "libfabric_shim/provider/core/silence.h"
#include "libfabric_shim/provider/types.h"

namespace clustar::libfabric_shim::provider {

class Inbound;

// Where messages are matched.
class Desk {
 public:
  virtual ~Desk() = default;
  virtual Source source_of(const transport::net::Address& address) = 0;
  // `payload` is of an eager message, and valid during the call.
  virtual void arrived(const std::shared_ptr<Inbound>& from, const Header& header,
                       std::span<const std::byte> payload) = 0;
  virtual bool full() const = 0;  // nothing more can be kept
};

class Inbound : public std::enable_shared_from_this<Inbound> {
 public:
  // Error: the channel takes no memory or no receives.
  static Result<std::shared_ptr<Inbound>> open(Setup& setup, Desk& desk,
                                               std::unique_ptr<transport::RecvChannel> channel);
  ~Inbound();
  Inbound(const Inbound&) = delete;
  Inbound& operator=(const Inbound&) = delete;

  void progress();
  // kAnySource: it has not said who it is.
  Source source() const { return source_; }
  // Receives the payload that `header` offered; completes.
  void fetch(const Header& header, const Operation& into);
  bool failed() const { return failed_; }

 private:
  static constexpr std::size_t kBuffers = 16;
  // Payloads at a time: with the buffers they stay below what a channel lets wait, so a buffer is never refused for
  // long.
  static constexpr std::size_t kFetches = 12;
  static constexpr int kMostAtOnce = 64;  // messages, before another connection has its turn
  struct Fetch {
    Header header{};
    Operation into{};
    std::unique_ptr<transport::Mr> mr{};
    transport::Request* request = nullptr;  // null: not yet posted
  };

  Inbound(Setup& setup, Desk& desk, std::unique_ptr<transport::RecvChannel> channel)
      : setup_(setup), desk_(desk), silence_(setup.settings.stall_timeout), channel_(std::move(channel)) {}

  void post();
  void take(std::span<const std::byte> message);
  bool finish_fetches();     // true: one ended
  bool start(Fetch& fetch);  // false: later, or it failed
  void complete(const Fetch& fetch, int error);
  void fail_with(int error, const std::string& why);

  Setup& setup_;
  Desk& desk_;
  Source source_ = kAnySource;
  bool failed_ = false;
  std::size_t room_ = 0;  // of a buffer
  std::vector<std::byte> memory_;
  std::deque<transport::Request*> posted_;  // of the buffers from front_ on
  std::size_t front_ = 0;
  std::deque<Fetch> fetches_;
  std::size_t active_ = 0;  // of them that are posted
  Silence silence_;         // of payloads that were offered and are awaited
  // Registrations end before their channel.
  std::unique_ptr<transport::RecvChannel> channel_;
  std::unique_ptr<transport::Mr> mr_;
};

}  // namespace clustar::libfabric_shim::provider
