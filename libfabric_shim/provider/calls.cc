// libfabric's many calls of sending and receiving, as the two that the endpoint has.
#include <rdma/fi_tagged.h>

#include "libfabric_shim/provider/endpoint.h"

namespace clustar::libfabric_shim::provider {
namespace {

using Call = Endpoint::Call;

Endpoint& of(fid_ep* endpoint) { return *static_cast<Endpoint*>(endpoint); }

// One buffer at most (iov_limit). False: more.
template <class Message>
bool take_message(Call& call, const Message& message) {
  if (message.iov_count > 1) return false;
  if (message.iov_count == 1) {
    call.buffer = message.msg_iov[0].iov_base;
    call.length = message.msg_iov[0].iov_len;
  }
  call.peer = message.addr;
  call.context = message.context;
  call.data = message.data;
  return true;
}

Call plain(const void* buffer, std::size_t length, fi_addr_t peer, void* context) {
  Call call;
  call.buffer = const_cast<void*>(buffer);
  call.length = length;
  call.peer = peer;
  call.context = context;
  return call;
}

Call with_tag(Call call, std::uint64_t tag, std::uint64_t ignore = 0) {
  call.tagged = true;
  call.tag = tag;
  call.ignore = ignore;
  return call;
}

ssize_t send(fid_ep* ep, Call call) {
  call.flags = of(ep).send_flags();
  return of(ep).send(call);
}

ssize_t send_data(fid_ep* ep, Call call, std::uint64_t data) {
  call.flags = of(ep).send_flags() | FI_REMOTE_CQ_DATA;
  call.data = data;
  return of(ep).send(call);
}

ssize_t inject(fid_ep* ep, Call call) {
  call.silent = true;
  return of(ep).send(call);
}

ssize_t inject_data(fid_ep* ep, Call call, std::uint64_t data) {
  call.silent = true;
  call.flags = FI_REMOTE_CQ_DATA;
  call.data = data;
  return of(ep).send(call);
}

ssize_t receive(fid_ep* ep, Call call) {
  call.flags = of(ep).receive_flags();
  return of(ep).receive(call);
}

Call vector(const iovec* iov, std::size_t count, fi_addr_t peer, void* context) {
  return count == 0 ? plain(nullptr, 0, peer, context) : plain(iov->iov_base, iov->iov_len, peer, context);
}

}  // namespace

fi_ops_msg& message_calls() {
  static fi_ops_msg table = [] {
    fi_ops_msg ops{};
    ops.size = sizeof(ops);
    ops.recv = [](fid_ep* ep, void* buffer, std::size_t length, void*, fi_addr_t peer, void* context) {
      return receive(ep, plain(buffer, length, peer, context));
    };
    ops.recvv = [](fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t peer, void* context) -> ssize_t {
      return count > 1 ? -FI_EINVAL : receive(ep, vector(iov, count, peer, context));
    };
    ops.recvmsg = [](fid_ep* ep, const fi_msg* message, std::uint64_t flags) -> ssize_t {
      Call call;
      call.flags = flags;
      return take_message(call, *message) ? of(ep).receive(call) : -FI_EINVAL;
    };
    ops.send = [](fid_ep* ep, const void* buffer, std::size_t length, void*, fi_addr_t peer, void* context) {
      return send(ep, plain(buffer, length, peer, context));
    };
    ops.sendv = [](fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t peer, void* context) -> ssize_t {
      return count > 1 ? -FI_EINVAL : send(ep, vector(iov, count, peer, context));
    };
    ops.sendmsg = [](fid_ep* ep, const fi_msg* message, std::uint64_t flags) -> ssize_t {
      Call call;
      call.flags = flags;
      return take_message(call, *message) ? of(ep).send(call) : -FI_EINVAL;
    };
    ops.inject = [](fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t peer) {
      return inject(ep, plain(buffer, length, peer, nullptr));
    };
    ops.senddata = [](fid_ep* ep, const void* buffer, std::size_t length, void*, std::uint64_t data, fi_addr_t peer,
                      void* context) { return send_data(ep, plain(buffer, length, peer, context), data); };
    ops.injectdata = [](fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data, fi_addr_t peer) {
      return inject_data(ep, plain(buffer, length, peer, nullptr), data);
    };
    return ops;
  }();
  return table;
}

fi_ops_tagged& tagged_calls() {
  static fi_ops_tagged table = [] {
    fi_ops_tagged ops{};
    ops.size = sizeof(ops);
    ops.recv = [](fid_ep* ep, void* buffer, std::size_t length, void*, fi_addr_t peer, std::uint64_t tag,
                  std::uint64_t ignore,
                  void* context) { return receive(ep, with_tag(plain(buffer, length, peer, context), tag, ignore)); };
    ops.recvv = [](fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t peer, std::uint64_t tag,
                   std::uint64_t ignore, void* context) -> ssize_t {
      return count > 1 ? -FI_EINVAL : receive(ep, with_tag(vector(iov, count, peer, context), tag, ignore));
    };
    ops.recvmsg = [](fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) -> ssize_t {
      Call call = with_tag({}, message->tag, message->ignore);
      call.flags = flags;
      return take_message(call, *message) ? of(ep).receive(call) : -FI_EINVAL;
    };
    ops.send = [](fid_ep* ep, const void* buffer, std::size_t length, void*, fi_addr_t peer, std::uint64_t tag,
                  void* context) { return send(ep, with_tag(plain(buffer, length, peer, context), tag)); };
    ops.sendv = [](fid_ep* ep, const iovec* iov, void**, std::size_t count, fi_addr_t peer, std::uint64_t tag,
                   void* context) -> ssize_t {
      return count > 1 ? -FI_EINVAL : send(ep, with_tag(vector(iov, count, peer, context), tag));
    };
    ops.sendmsg = [](fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) -> ssize_t {
      Call call = with_tag({}, message->tag);
      call.flags = flags;
      return take_message(call, *message) ? of(ep).send(call) : -FI_EINVAL;
    };
    ops.inject = [](fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t peer, std::uint64_t tag) {
      return inject(ep, with_tag(plain(buffer, length, peer, nullptr), tag));
    };
    ops.senddata = [](fid_ep* ep, const void* buffer, std::size_t length, void*, std::uint64_t data, fi_addr_t peer,
                      std::uint64_t tag, void* context) {
      return send_data(ep, with_tag(plain(buffer, length, peer, context), tag), data);
    };
    ops.injectdata = [](fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data, fi_addr_t peer,
                        std::uint64_t tag) {
      return inject_data(ep, with_tag(plain(buffer, length, peer, nullptr), tag), data);
    };
    return ops;
  }();
  return table;
}

}  // namespace clustar::libfabric_shim::provider
