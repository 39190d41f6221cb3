#include "libfabric_shim/provider/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "libfabric_shim/provider/address.h"
#include "libfabric_shim/provider/info.h"

namespace clustar::libfabric_shim::provider {
namespace {

Endpoint& endpoint_of(fid* id) { return object_of<Endpoint, fid_ep>(id); }

int get_option(fid*, int, int, void*, std::size_t*) { return -FI_ENOPROTOOPT; }
int set_option(fid*, int, int, const void*, std::size_t) { return -FI_ENOPROTOOPT; }

fi_ops_ep& endpoint_calls() {
  static fi_ops_ep table = [] {
    fi_ops_ep ops{};
    ops.size = sizeof(ops);
    ops.cancel = [](fid* id, void* context) { return endpoint_of(id).cancel(context); };
    ops.getopt = get_option;
    ops.setopt = set_option;
    ops.tx_ctx = [](fid_ep*, int, fi_tx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    ops.rx_ctx = [](fid_ep*, int, fi_rx_attr*, fid_ep**, void*) { return -FI_ENOSYS; };
    ops.rx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; };
    ops.tx_size_left = [](fid_ep*) -> ssize_t { return -FI_ENOSYS; };
    return ops;
  }();
  return table;
}

fi_ops_cm& connection_calls() {
  static fi_ops_cm table = [] {
    fi_ops_cm ops{};
    ops.size = sizeof(ops);
    ops.setname = [](fid*, void*, std::size_t) { return -FI_ENOSYS; };
    ops.getname = [](fid* id, void* address, std::size_t* length) { return endpoint_of(id).name(address, length); };
    ops.getpeer = [](fid_ep*, void*, std::size_t*) { return -FI_ENOSYS; };
    ops.connect = [](fid_ep*, const void*, const void*, std::size_t) { return -FI_ENOSYS; };
    ops.listen = [](fid_pep*) { return -FI_ENOSYS; };
    ops.accept = [](fid_ep*, const void*, std::size_t) { return -FI_ENOSYS; };
    ops.reject = [](fid_pep*, fid_t, const void*, std::size_t) { return -FI_ENOSYS; };
    ops.shutdown = [](fid_ep*, std::uint64_t) { return -FI_ENOSYS; };
    ops.join = [](fid_ep*, const void*, std::uint64_t, fid_mc**, void*) { return -FI_ENOSYS; };
    return ops;
  }();
  return table;
}

int control(fid* id, int command, void*) { return command == FI_ENABLE ? endpoint_of(id).enable() : -FI_ENOSYS; }

}  // namespace

Endpoint::Endpoint(Domain& domain, const fi_info& info, void* context)
    : fid_ep(),
      domain_(domain),
      caps_(info.caps),
      send_flags_(info.tx_attr == nullptr ? 0 : info.tx_attr->op_flags),
      receive_flags_(info.rx_attr == nullptr ? 0 : info.rx_attr->op_flags) {
  static fi_ops table = fid_table([](struct fid* id) { return endpoint_of(id).close(); },
                                  [](struct fid* id, struct fid* what, std::uint64_t flags) {
                                    return guarded([&] { return endpoint_of(id).bind(what, flags); });
                                  },
                                  control);
  set_id(fid, FI_CLASS_EP, context, table);
  ops = &endpoint_calls();
  cm = &connection_calls();
  msg = &message_calls();
  tagged = &tagged_calls();
  ++domain_.children;
}

Endpoint::~Endpoint() { --domain_.children; }

int Endpoint::open(fid_domain* domain, fi_info* info, fid_ep** made, void* context) {
  return guarded([&]() -> int {
    Domain& where = *static_cast<Domain*>(domain);
    const auto address = info == nullptr ? std::nullopt : address_from(info->src_addr);
    if (!address) return -FI_EINVAL;
    const std::lock_guard lock(where.mutex());
    std::unique_ptr<Endpoint> endpoint(new Endpoint(where, *info, context));
    auto engine = Engine::open(where.transport(), where.clock(), where.log(), where.settings(), *address, where.book(),
                               *endpoint);
    if (!engine) {
      where.log().warn("clustar: " + engine.error().message);
      return -fi_error(engine.error().code);
    }
    endpoint->engine_ = std::move(*engine);
    *made = endpoint.release();
    return 0;
  });
}

int Endpoint::bind(struct fid* what, std::uint64_t flags) {
  const std::lock_guard lock(domain_.mutex());
  switch (what->fclass) {
    case FI_CLASS_AV: vector_ = &object_of<AddressVector, fid_av>(what); return 0;
    case FI_CLASS_CQ: return bind_queue(object_of<CompletionQueue, fid_cq>(what), flags);
    case FI_CLASS_CNTR: return bind_counter(object_of<EventCounter, fid_cntr>(what), flags);
    case FI_CLASS_EQ: return 0;
    default: return -FI_EINVAL;
  }
}

int Endpoint::bind_queue(CompletionQueue& queue, std::uint64_t flags) {
  if ((flags & (FI_TRANSMIT | FI_RECV)) == 0) return -FI_EINVAL;
  const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  for (const auto& [bit, side] : {std::pair{FI_TRANSMIT, &sends_}, std::pair{FI_RECV, &receives_}}) {
    if ((flags & bit) == 0) continue;
    if (side->queue != nullptr) return -FI_EINVAL;
    side->queue = &queue;
    side->selective = selective;
  }
  queue.drives().add(*this);
  return 0;
}

int Endpoint::bind_counter(EventCounter& counter, std::uint64_t flags) {
  if ((flags & (FI_SEND | FI_RECV)) == 0) return -FI_EINVAL;
  if ((flags & FI_SEND) != 0) sends_.counter = &counter;
  if ((flags & FI_RECV) != 0) receives_.counter = &counter;
  counter.drives().add(*this);
  return 0;
}

int Endpoint::enable() {
  const std::lock_guard lock(domain_.mutex());
  if (vector_ == nullptr) return -FI_ENOAV;
  if (sends_.queue == nullptr && receives_.queue == nullptr && sends_.counter == nullptr &&
      receives_.counter == nullptr) {
    return -FI_ENOCQ;
  }
  enabled_ = true;
  return 0;
}

int Endpoint::close() {
  return guarded([&]() -> int {
    using Now = std::chrono::steady_clock;
    const auto limit = Now::now() + domain_.settings().close_timeout;
    for (bool drained = false; !drained && Now::now() < limit;) {
      {
        const std::lock_guard lock(domain_.mutex());
        engine_->progress();
        drained = engine_->drained();
      }
      if (!drained) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    {
      const std::lock_guard lock(domain_.mutex());
      engine_.reset();
      for (const Side* side : {&sends_, &receives_}) {
        if (side->queue != nullptr) side->queue->drives().remove(*this);
        if (side->counter != nullptr) side->counter->drives().remove(*this);
      }
    }
    delete this;
    return 0;
  });
}

int Endpoint::name(void* address, std::size_t* length) const {
  const auto& own = engine_->address();
  const std::size_t room = *length;
  *length = own.length();
  if (address != nullptr) std::memcpy(address, own.raw(), std::min<std::size_t>(room, own.length()));
  return room < own.length() ? -FI_ETOOSMALL : 0;
}

ssize_t Endpoint::send(const Call& call) {
  return guarded([&]() -> ssize_t {
    const std::lock_guard lock(domain_.mutex());
    if (!enabled_) return -FI_EOPBADSTATE;
    if ((call.flags & (FI_DELIVERY_COMPLETE | FI_COMMIT_COMPLETE | FI_MATCH_COMPLETE)) != 0) return -FI_EOPNOTSUPP;
    const bool inject = call.silent || (call.flags & FI_INJECT) != 0;
    const auto to = vector_->source(call.peer);
    if (!to || call.length > kMaxMessageBytes || (inject && call.length > kInjectBytes)) return -FI_EINVAL;
    Outgoing message;
    auto* const bytes = static_cast<std::byte*>(call.buffer);
    message.operation = {call.context, bytes, call.length, FI_SEND | (call.tagged ? FI_TAGGED : FI_MSG), true};
    message.operation.report = !call.silent && reports(sends_, call.flags);
    message.header.tagged = call.tagged;
    message.header.tag = call.tag;
    message.header.length = call.length;
    message.header.data = call.data;
    message.header.has_data = (call.flags & FI_REMOTE_CQ_DATA) != 0;
    if (inject && call.length > 0) message.copy.assign(bytes, bytes + call.length);
    return engine_->send(*to, std::move(message)) ? 0 : -FI_EAGAIN;
  });
}

ssize_t Endpoint::receive(const Call& call) {
  return guarded([&]() -> ssize_t {
    const std::lock_guard lock(domain_.mutex());
    if (!enabled_) return -FI_EOPBADSTATE;
    Operation operation{call.context, static_cast<std::byte*>(call.buffer), call.length,
                        FI_RECV | (call.tagged ? FI_TAGGED : FI_MSG), reports(receives_, call.flags)};
    Matcher::Receive want{.id = 0, .source = kAnySource, .tag = call.tag, .ignore = call.ignore};
    // Without FI_DIRECTED_RECV the address means nothing.
    if ((caps_ & FI_DIRECTED_RECV) != 0 && call.peer != FI_ADDR_UNSPEC) {
      const auto from = vector_->source(call.peer);
      if (!from) return -FI_EINVAL;
      want.source = *from;
    }
    if ((call.flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) != 0) return look(operation, call, want);
    return engine_->receive(operation, call.tagged, want) ? 0 : -FI_EAGAIN;
  });
}

ssize_t Endpoint::look(const Operation& operation, const Call& call, const Matcher::Receive& want) {
  if (!call.tagged) return -FI_EOPNOTSUPP;
  const bool discard = (call.flags & FI_DISCARD) != 0;
  if ((call.flags & FI_PEEK) == 0) return engine_->take(operation, discard) ? 0 : -FI_EINVAL;
  const bool claim = (call.flags & FI_CLAIM) != 0;
  engine_->look(discard ? Look::kDiscard : claim ? Look::kClaim : Look::kPeek, operation, want);
  return 0;
}

ssize_t Endpoint::cancel(const void* context) {
  return guarded([&]() -> ssize_t {
    const std::lock_guard lock(domain_.mutex());
    return engine_->cancel(context) ? 0 : -FI_ENOENT;
  });
}

void Endpoint::complete(const Completion& completion) {
  if (completion.operation.discards) return;
  const Side& side = (completion.operation.flags & FI_SEND) != 0 ? sends_ : receives_;
  if (completion.error == 0 || completion.error != FI_ENOMSG) {
    if (side.counter != nullptr) side.counter->count(completion.error == 0);
  }
  if (side.queue == nullptr || (completion.error == 0 && !completion.operation.report)) return;
  const bool known = completion.source != kAnySource;
  side.queue->write(completion, known ? vector_->address_of(completion.source) : FI_ADDR_NOTAVAIL);
}

}  // namespace clustar::libfabric_shim::provider
