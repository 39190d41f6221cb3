#include "bench/conform/session.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <utility>

namespace clustar::bench::conform {
namespace {

using nccl_abi::kSuccess;

// Entries behind the sizes that a test may write.
constexpr std::size_t kSizesGuard = 8;
constexpr int kGuardValue = 0x5a5a5a5a;
constexpr std::byte kHandleGuard{0xa5};

}  // namespace

std::string result_name(int result) {
  constexpr std::array kNames = {"ncclSuccess",       "ncclUnhandledCudaError", "ncclSystemError",
                                 "ncclInternalError", "ncclInvalidArgument",    "ncclInvalidUsage",
                                 "ncclRemoteError",   "ncclInProgress"};
  const bool known = result >= 0 && static_cast<std::size_t>(result) < kNames.size();
  return fmt::format("{} ({})", known ? kNames[static_cast<std::size_t>(result)] : "no ncclResult_t", result);
}

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Session::Session(const Env& env) : env_(env) {
  note_step("opening the plugin");
  note_call("dlopen");
  auto opened = proxy::NetPlugin::open(env.plugin, env.version);
  if (!opened) fail_check(opened.error().message);
  net_ = std::move(*opened);
  note_step("initialising");
  note_call("init");
  must(net_->init(0x636f6e666f726dull, nccl_abi::kTrafficClassUndefined, &ctx_), "init");
  note_call("devices");
  int count = 0;
  must(net_->devices(&count), "devices");
  if (count <= env_.connect_device) {
    fail_check(fmt::format("devices gives {}: {}", count,
                           count <= 0 ? "nothing to connect over"
                                      : fmt::format("there is no device {} to connect from", env_.connect_device)));
  }
  note_call("getProperties");
  must(net_->get_properties(0, &properties_), "getProperties(0)");
}

Session::~Session() {
  note_step("finalizing");
  note_call("finalize");
  if (net_->version() <= 10 || net_->has_finalize()) must(net_->finalize(ctx_), "finalize");
  note_step("unloading");
  note_call("dlclose");
  net_.reset();
}

std::string Session::warning() const {
  const std::string text = net_->last_warning();
  return text.empty() ? "" : fmt::format(" (plugin: {})", text);
}

void Session::must(int result, const char* call) {
  if (result != kSuccess) fail_check(fmt::format("{} returned {}{}", call, result_name(result), warning()));
}

void Session::check_duration(const char* call, Clock::time_point begin) const {
  const auto took = Clock::now() - begin;
  if (took > env_.call_bound) {
    fail_check(fmt::format("{} took {:.1f} s; it may not block (bound here: {:.1f} s)", call,
                           std::chrono::duration<double>(took).count(),
                           static_cast<double>(env_.call_bound.count()) / 1e3));
  }
}

Listening Session::listen(int dev) {
  Listening listening;
  listening.handle.fill(std::byte{0});
  listening.guard.fill(kHandleGuard);
  must(bounded("listen", [&] { return net_->listen(ctx_, dev, &listening.handle, &listening.comm); }), "listen");
  if (listening.comm == nullptr) fail_check("listen returned ncclSuccess with a NULL listenComm");
  const auto written = std::count_if(listening.guard.begin(), listening.guard.end(),
                                     [](std::byte value) { return value != kHandleGuard; });
  if (written > 0) {
    fail_check(fmt::format("listen wrote at least {} bytes behind the {} bytes of the handle", written,
                           nccl_abi::kHandleBytes));
  }
  return listening;
}

int Session::try_connect(proxy::Handle* handle, void** comm, int dev) {
  return bounded("connect", [&] { return net_->connect(ctx_, dev, handle, comm); });
}

int Session::try_accept(void* listen_comm, void** comm) {
  return bounded("accept", [&] { return net_->accept(listen_comm, comm); });
}

void* Session::wait_connect(proxy::Handle* handle) {
  void* comm = nullptr;
  const auto begin = Clock::now();
  while (comm == nullptr) {
    must(try_connect(handle, &comm), "connect");
    if (Clock::now() - begin > env_.stuck_bound) fail_check("connect gave no comm to a peer that is there" + warning());
    if (comm == nullptr) sched_yield();
  }
  return comm;
}

void* Session::wait_accept(void* listen_comm) {
  void* comm = nullptr;
  const auto begin = Clock::now();
  while (comm == nullptr) {
    must(try_accept(listen_comm, &comm), "accept");
    if (Clock::now() - begin > env_.stuck_bound) fail_check("accept gave no comm for a peer that is there" + warning());
    if (comm == nullptr) sched_yield();
  }
  return comm;
}

void Session::close_listen(void* listen_comm) {
  note_call("closeListen");
  must(net_->close_listen(listen_comm), "closeListen");
}

Link Session::link_to(Listening& listening, int dev) {
  Link link(this);
  // The handle of the connecting side is a copy: it travelled, and connect may keep its state in it.
  proxy::Handle handle = listening.handle;
  const auto begin = Clock::now();
  while (link.send_comm == nullptr || link.recv_comm == nullptr) {
    if (link.send_comm == nullptr) must(try_connect(&handle, &link.send_comm, dev), "connect");
    if (link.recv_comm == nullptr) must(try_accept(listening.comm, &link.recv_comm), "accept");
    if (Clock::now() - begin > env_.stuck_bound) {
      fail_check(fmt::format("no connection after {:.0f} s: sendComm is {}, recvComm is {}{}", seconds_since(begin),
                             link.send_comm != nullptr ? "there" : "NULL", link.recv_comm != nullptr ? "there" : "NULL",
                             warning()));
    }
    sched_yield();
  }
  return link;
}

Link Session::link() {
  Listening listening = listen();
  Link link = link_to(listening);
  close_listen(listening.comm);
  return link;
}

Link Session::link(int dev) {
  Listening listening = listen(dev);
  Link link = link_to(listening, dev);
  close_listen(listening.comm);
  return link;
}

int Session::post(Transfer& transfer) {
  const std::size_t n = transfer.parts.size();
  transfer.request =
      transfer.optional_completion ? reinterpret_cast<void*>(nccl_abi::kOptionalRecvCompletion) : nullptr;
  int result;
  if (transfer.is_send) {
    const Part& part = transfer.parts.front();
    std::byte* data = part.region->data() + part.offset;
    result = bounded("isend", [&] {
      return net_->isend(transfer.comm, data, part.size, part.tag, part.region->mhandle(), nullptr, &transfer.request);
    });
  } else {
    std::vector<void*> data(n), mhandles(n);
    std::vector<std::size_t> sizes(n);
    std::vector<int> tags(n);
    for (std::size_t i = 0; i < n; ++i) {
      const Part& part = transfer.parts[i];
      data[i] = part.region->data() + part.offset;
      sizes[i] = part.size;
      tags[i] = part.tag;
      mhandles[i] = part.region->mhandle();
    }
    result = bounded("irecv", [&] {
      return net_->irecv(transfer.comm, static_cast<int>(n), data.data(), sizes.data(), tags.data(), mhandles.data(),
                         nullptr, &transfer.request);
    });
  }
  transfer.busy += transfer.request == nullptr ? 1 : 0;
  return result;
}

int Session::advance(Transfer& transfer) {
  if (transfer.done) return kSuccess;
  if (transfer.request == nullptr) return post(transfer);
  // NCCL zeroes the sizes and reads them only when done.
  const std::size_t n = transfer.parts.size();
  std::vector<int> sizes(n + kSizesGuard, 0);
  std::fill(sizes.begin() + static_cast<std::ptrdiff_t>(n), sizes.end(), kGuardValue);
  int done = 0;
  const int result = bounded("test", [&] { return net_->test(transfer.request, &done, sizes.data()); });
  if (std::any_of(sizes.begin() + static_cast<std::ptrdiff_t>(n), sizes.end(),
                  [](int size) { return size != kGuardValue; })) {
    fail_check(fmt::format("test wrote more than the {} sizes of its request", n));
  }
  if (result != kSuccess || done == 0) return result;
  transfer.done = true;
  transfer.sizes.assign(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(n));
  return kSuccess;
}

bool Session::advance_all(const std::vector<Transfer*>& transfers) {
  using Key = std::pair<void*, int>;  // comm and tag
  const auto among = [](const std::vector<Key>& keys, const Key& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  bool moved = false;
  std::vector<Key> unposted, unfinished;  // what follows is not posted, and not tested
  for (Transfer* transfer : transfers) {
    if (transfer->done) continue;
    const Key key(transfer->comm, transfer->parts.front().tag);
    const bool was_posted = transfer->request != nullptr;
    if (among(was_posted ? unfinished : unposted, key)) continue;
    must(advance(*transfer), was_posted ? "test" : transfer->is_send ? "isend" : "irecv");
    if (transfer->request == nullptr) unposted.push_back(key);
    if (!transfer->done) unfinished.push_back(key);
    moved = moved || transfer->done || (!was_posted && transfer->request != nullptr);
  }
  return moved;
}

void Session::complete(const std::vector<Transfer*>& transfers) {
  auto last_move = Clock::now();
  const auto open = [](const Transfer* transfer) { return !transfer->done; };
  while (std::any_of(transfers.begin(), transfers.end(), open)) {
    if (advance_all(transfers)) {
      last_move = Clock::now();
      continue;
    }
    if (Clock::now() - last_move > env_.stuck_bound) {
      const Transfer& stuck = **std::find_if(transfers.begin(), transfers.end(), open);
      fail_check(fmt::format(
          "stuck: {} of {} bytes, tag {}, {} for {:.0f} s; {} of {} transfers are done{}",
          stuck.is_send ? "isend" : "irecv", stuck.parts.front().size, stuck.parts.front().tag,
          stuck.request == nullptr ? "gets a NULL request" : "posted but not done", seconds_since(last_move),
          std::count_if(transfers.begin(), transfers.end(), std::not_fn(open)), transfers.size(), warning()));
    }
    sched_yield();
  }
}

bool Session::flush(const Transfer& recv) {
  const std::size_t n = recv.parts.size();
  std::vector<void*> data(n), mhandles(n);
  std::vector<int> sizes = recv.sizes;
  for (std::size_t i = 0; i < n; ++i) {
    data[i] = recv.parts[i].region->data() + recv.parts[i].offset;
    mhandles[i] = recv.parts[i].region->mhandle();
  }
  void* request = nullptr;
  must(bounded("iflush",
               [&] {
                 return net_->iflush(recv.comm, static_cast<int>(n), data.data(), sizes.data(), mhandles.data(),
                                     &request);
               }),
       "iflush");
  if (request == nullptr) return false;
  const auto begin = Clock::now();
  for (int done = 0; done == 0;) {
    must(bounded("test", [&] { return net_->test(request, &done, nullptr); }), "test of a flush");
    if (Clock::now() - begin > env_.stuck_bound) fail_check("a flush is never done" + warning());
  }
  return true;
}

Link::Link(Link&& other) noexcept
    : send_comm(std::exchange(other.send_comm, nullptr)),
      recv_comm(std::exchange(other.recv_comm, nullptr)),
      session_(other.session_) {}

Link::~Link() {
  close_send();
  close_recv();
}

void Link::close_send() {
  if (send_comm == nullptr) return;
  note_call("closeSend");
  session_->must(session_->net().close_send(std::exchange(send_comm, nullptr)), "closeSend");
}

void Link::close_recv() {
  if (recv_comm == nullptr) return;
  note_call("closeRecv");
  session_->must(session_->net().close_recv(std::exchange(recv_comm, nullptr)), "closeRecv");
}

Transfer Link::send(Region& region, std::size_t offset, std::size_t size, int tag) const {
  Transfer transfer;
  transfer.comm = send_comm;
  transfer.is_send = true;
  transfer.parts = {{&region, offset, size, tag}};
  return transfer;
}

Transfer Link::recv(Region& region, std::size_t offset, std::size_t size, int tag) const {
  Transfer transfer;
  transfer.comm = recv_comm;
  transfer.parts = {{&region, offset, size, tag}};
  return transfer;
}

void exchange(Session& session, Link& link, std::size_t size, std::uint64_t seed, Place from_place, Place into_place) {
  const std::string what = fmt::format("a message of {} bytes", size);
  note_step("transferring " + what);
  Region from(session, link.send_comm, size, from_place);
  Region into(session, link.recv_comm, size, into_place);
  from.fill(seed, 0, size);
  into.clear();
  Transfer recv = link.recv(into, 0, size);
  Transfer send = link.send(from, 0, size);
  session.complete({&recv, &send});
  if (recv.sizes[0] != static_cast<int>(size)) {
    fail_check(fmt::format("test reported a size of {} for {}", recv.sizes[0], what));
  }
  if (into_place.memory != Memory::kHost && size > 0) session.flush(recv);
  into.expect(seed, 0, size, what);
  into.expect_guards(what);
  from.expect(seed, 0, size, "the send buffer after " + what);
}

}  // namespace clustar::bench::conform
