#include "mlt/driver/connection.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::mlt::driver {

class Connection::ChannelMr final : public transport::Mr {
 public:
  ChannelMr(const gdr::MemoryRef& memory, std::unique_ptr<io::Mr> mr, std::shared_ptr<Anchor> anchor)
      : Mr(memory), mr_(std::move(mr)), anchor_(std::move(anchor)) {}
  ~ChannelMr() override {
    anchor_->deregister(*this, [this] { mr_.reset(); });
  }
  const io::Mr* io_mr() const { return mr_.get(); }

 private:
  std::unique_ptr<io::Mr> mr_;
  std::shared_ptr<Anchor> anchor_;
};

Connection::Connection(std::shared_ptr<Engine> engine, net::Socket control, std::string doing, std::string peer)
    : held_engine_(std::move(engine)),
      engine_(*held_engine_),
      control_(std::move(control)),
      peer_(std::move(peer)),
      doing_(std::move(doing)),
      anchor_(std::make_shared<Anchor>(engine_.mutex(), this)),
      stall_("mlt", engine_.context().stall_timeout, engine_.context().clock, engine_.context().log) {}

Result<void> Connection::attach(Engine::End end, Engine::FarEnd far_end, std::uint64_t secret,
                                const transport::ChannelOptions& channel, const Session* session) {
  channel_ = channel;
  far_end.round_trip = net::shortest_round_trip(control_);
  // What tells whether the peer lives must not starve behind our own data, where switches have classes.
  constexpr int kDscpShift = 2;  // the lower bits are ECN's
  net::set_traffic_class(control_, engine_.options().classes.dscp(PacketKind::kControl) << kDscpShift);
  const auto attached = engine_.attach(*this, end, far_end, secret, channel, session, id_);
  if (!attached) return tl::unexpected(attached.error());
  return {};
}

Result<std::unique_ptr<transport::Mr>> Connection::register_memory(const gdr::MemoryRef& memory) {
  auto mr = engine_.reg_mr(memory);
  if (!mr) return tl::unexpected(mr.error());
  return std::make_unique<ChannelMr>(memory, std::move(*mr), anchor_);
}

bool Connection::on_device(const transport::Mr& mr) { return mr.memory().kind != gdr::MemoryKind::kHost; }

const io::Mr* Connection::io_mr(const transport::Mr& mr) { return static_cast<const ChannelMr&>(mr).io_mr(); }

void Connection::on_deregister(const transport::Mr& mr) {
  engine_.drain_posts(engine_.context().clock.now());
  if (!broken() && uses(mr)) fail_with(ErrorCode::kInvalidUsage, "memory was deregistered while requests used it");
}

void Connection::leave() {
  anchor_->let_go();
  engine_.forget(*this);
  if (id_) engine_.close(*id_);
  id_.reset();
}

void Connection::fail_with(ErrorCode code, const std::string& what) {
  if (broken()) return;
  end_with(code, what);
  engine_.context().log.warn(error_.message);
}

void Connection::fail_quietly(ErrorCode code, const std::string& what) {
  if (broken()) return;
  untold_.store(true, std::memory_order_relaxed);
  end_with(code, what);
}

void Connection::end_with(ErrorCode code, const std::string& what) {
  error_ = Error{code, fmt::format("mlt: {} {}: {}", doing_, peer_, what)};
  if (id_) engine_.close(*id_);
  id_.reset();
  failed_.store(true, std::memory_order_release);
}

const Error& Connection::error() {
  if (untold_.load(std::memory_order_relaxed) && untold_.exchange(false)) engine_.context().log.warn(error_.message);
  return error_;
}

void Connection::on_failure(const Error& error) { fail_with(error.code, error.message); }

void Connection::check(TimePoint) {
  if (control_open_) read_control();
  if (!broken()) check_stall();
}

void Connection::check_stall() {
  const auto over = stall_.check(outstanding_ > 0, progress(), [this] {
    return transport::Stall{peer_, "has done nothing", waiting()};
  });
  if (over) fail_with(ErrorCode::kRemote, *over);
}

}  // namespace clustar::mlt::driver
