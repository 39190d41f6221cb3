// What the two kinds of channel have in common: a place in the engine, a TCP connection that tells whether the peer is
// still there, and how it ends.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "mlt/driver/engine.h"
#include "transport/api/transport.h"
#include "transport/message/memory_anchor.h"
#include "transport/message/stall_report.h"
#include "transport/net/socket.h"

namespace clustar::mlt::driver {

class Connection : public Engine::Client {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Both before the first request. `session`: null without a pre-shared key.
  // The far end's round trip is the control connection's.
  Result<void> attach(Engine::End end, Engine::FarEnd far_end, std::uint64_t secret,
                      const transport::ChannelOptions& channel, const Session* session);
  net::Socket& control() { return control_; }

  void check(TimePoint now) final;
  void on_failure(const Error& error) final;
  // For its registrations, with the engine's lock held.
  void on_deregister(const transport::Mr& mr);

 protected:
  // `doing`: "sending to" or "receiving from".
  Connection(std::shared_ptr<Engine> engine, net::Socket control, std::string doing, std::string peer);
  // The derived class has called leave() before.
  ~Connection() = default;

  virtual void read_control() = 0;
  // Of the peer: a count that changes whenever it did something.
  virtual std::uint64_t progress() const = 0;
  virtual std::string waiting() const = 0;  // "3 sends wait for its receives"

  class ChannelMr;
  // Errors: as Engine::reg_mr.
  Result<std::unique_ptr<transport::Mr>> register_memory(const gdr::MemoryRef& memory);
  // The processor neither reads nor writes it.
  static bool on_device(const transport::Mr& mr);
  static const io::Mr* io_mr(const transport::Mr& mr);
  virtual bool uses(const transport::Mr& mr) const = 0;  // in a request that is not done

  // The following are for the thread that holds the engine's lock.
  void fail_with(ErrorCode code, const std::string& what);
  // Nobody waits: it is logged when somebody asks for more.
  void fail_quietly(ErrorCode code, const std::string& what);
  bool broken() const { return failed_.load(std::memory_order_relaxed); }
  bool attached() const { return id_.has_value(); }  // false once broken, and if attach() failed
  Engine::ConnectionId id() const { return *id_; }
  void leave();

  // For the channel's caller.
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  const Error& error();  // once has_failed()

  const std::shared_ptr<Engine> held_engine_;  // EngineGroup
  Engine& engine_;
  net::Socket control_;
  bool control_open_ = true;
  std::uint32_t outstanding_ = 0;  // requests that were submitted and are not done
  const std::string peer_;
  transport::ChannelOptions channel_;  // from attach() on

 private:
  using Anchor = transport::MemoryAnchor<Connection>;

  void check_stall();
  void end_with(ErrorCode code, const std::string& what);

  const std::string doing_;
  const std::shared_ptr<Anchor> anchor_;
  std::optional<Engine::ConnectionId> id_;
  transport::StallReport stall_;
  Error error_;  // written once, before failed_
  std::atomic<bool> failed_{false};
  std::atomic<bool> untold_{false};  // the error was not logged; written before failed_
};

}  // namespace clustar::mlt::driver
