// Drives the plugin inside a check, as NCCL's proxy does: a Session is one communicator's init, a Link one connection
// with both ends in this process, a Region a registered buffer with guard zones, a Transfer one isend or irecv.
// A call that breaks the contract ends the check (verdict.h), so callers go on as if nothing ever failed.
// Threads: different Links of one Session may be driven from different threads, as in NCCL.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/conform/check.h"
#include "bench/conform/verdict.h"
#include "bench/proxy/net_plugin.h"

namespace clustar::bench::conform {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class Region;
class Session;

// ncclRemoteError (6), and so on.
std::string result_name(int result);
double seconds_since(Clock::time_point begin);

struct Part {
  Region* region = nullptr;
  std::size_t offset = 0;
  std::size_t size = 0;
  int tag = 0;
};

// One isend (one part) or one irecv (1 .. maxRecvs parts). Progressed by Session::advance.
struct Transfer {
  void* comm = nullptr;
  bool is_send = false;
  std::vector<Part> parts;
  bool optional_completion = false;  // put NCCL's marker into *request before irecv
  void* request = nullptr;           // NULL until the plugin accepted it
  bool done = false;
  std::uint64_t busy = 0;  // how often the plugin said "not now"
  std::vector<int> sizes;  // as test reported them, one per part
};

// One listen. The handle has guard bytes behind it.
struct Listening {
  proxy::Handle handle;
  std::array<std::byte, 128> guard;
  void* comm = nullptr;
};

// A connection with both ends here. Closes what is left on destruction; closing must succeed.
class Link {
 public:
  explicit Link(Session* session) : session_(session) {}
  Link(Link&& other) noexcept;
  Link& operator=(Link&&) = delete;
  ~Link();

  void* send_comm = nullptr;
  void* recv_comm = nullptr;

  Transfer send(Region& region, std::size_t offset, std::size_t size, int tag = 0) const;
  Transfer recv(Region& region, std::size_t offset, std::size_t size, int tag = 0) const;
  void close_send();
  void close_recv();

 private:
  Session* session_;
};

class Session {
 public:
  explicit Session(const Env& env);
  ~Session();  // finalize and dlclose, both of which must succeed
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  proxy::NetPlugin& net() { return *net_; }
  void* ctx() { return ctx_; }
  const Env& env() const { return env_; }
  const proxy::NetProperties& properties() const { return properties_; }  // of device 0

  // Ends the check unless `result` is ncclSuccess. `call` names it.
  void must(int result, const char* call);
  // Runs a call that may not block; ends the check when it took longer than env.call_bound. Returns its result.
  template <class F>
  int bounded(const char* call, F&& function) {
    note_call(call);
    const auto begin = Clock::now();
    const int result = function();
    check_duration(call, begin);
    return result;
  }

  Listening listen(int dev = 0);
  // One bounded call each; the result of the plugin, *comm stays NULL while not connected. From env.connect_device,
  // unless another is named.
  int try_connect(proxy::Handle* handle, void** comm) { return try_connect(handle, comm, env_.connect_device); }
  int try_connect(proxy::Handle* handle, void** comm, int dev);
  int try_accept(void* listen_comm, void** comm);
  // Repeat until there is a comm; ends the check on an error or after stuck_bound.
  void* wait_connect(proxy::Handle* handle);
  void* wait_accept(void* listen_comm);
  void close_listen(void* listen_comm);
  // listen, connect, accept, closeListen; all in this process: between the devices of `env`, or of one with itself.
  Link link();
  Link link(int dev);
  // Connects to a listener of this session; leaves it open.
  Link link_to(Listening& listening) { return link_to(listening, env_.connect_device); }
  Link link_to(Listening& listening, int dev);

  // One step of a transfer: posts it or tests it. Returns the plugin's result; a broken rule ends the check.
  int advance(Transfer& transfer);
  // Advances all until all are done. Posts in the order given per comm and tag, and tests the oldest that is not done
  // only, as NCCL does (v2.28.9 src/transport/net.cc:1339, 1508). Ends the check on an error, or when nothing moves for
  // stuck_bound.
  void complete(const std::vector<Transfer*>& transfers);
  // One round of that; true when something moved.
  bool advance_all(const std::vector<Transfer*>& transfers);

  // iflush of a receive's parts, each with the size that it got, and its end. False: the plugin gave no request.
  bool flush(const Transfer& recv);

  // " (plugin: ...)" with the plugin's newest warning, or "".
  std::string warning() const;

 private:
  void check_duration(const char* call, Clock::time_point begin) const;
  int post(Transfer& transfer);

  Env env_;
  std::unique_ptr<proxy::NetPlugin> net_;
  void* ctx_ = nullptr;
  proxy::NetProperties properties_;
};

// Where a buffer lies and how it is registered. What plays a GPU's memory is host memory with a descriptor (memfd).
enum class Memory : std::uint8_t { kHost, kCuda, kDmaBuf };
struct Place {
  Memory memory = Memory::kHost;
  std::size_t shift = 0;       // of its first byte behind a page's
  std::size_t dma_offset = 0;  // of that page in the dma-buf, whole pages
};

// A registered buffer. Around it lie guard zones that nobody may write. The descriptor of a dma-buf is closed straight
// after its registration, as by NCCL.
class Region {
 public:
  Region(Session& session, void* comm, std::size_t size, Place place = {});
  // One more registration of a part of `of`, which outlives it.
  Region(Session& session, void* comm, Region& of, std::size_t offset, std::size_t size);
  Region(Region&& other) noexcept;
  Region& operator=(Region&&) = delete;
  ~Region();  // deregMr must succeed; checks the guards

  // Before its end; the memory stays. Once.
  void deregister();

  std::byte* data() { return data_; }
  std::size_t size() const { return size_; }
  void* mhandle() const { return mhandle_; }

  // Writes the seed's byte sequence, or the filler that says "nothing arrived here".
  void fill(std::uint64_t seed, std::size_t offset, std::size_t size);
  void clear();
  // End the check with the first wrong byte; `what` says which message.
  void expect(std::uint64_t seed, std::size_t offset, std::size_t size, const std::string& what);
  void expect_untouched(std::size_t offset, std::size_t size, const std::string& what);
  void expect_guards(const std::string& what);

 private:
  static constexpr std::size_t kGuard = 4096;
  struct Freer {
    Freer() : mapped(0) {}
    explicit Freer(std::size_t bytes) : mapped(bytes) {}
    std::size_t mapped;  // 0: from malloc
    void operator()(std::byte* memory) const;
  };

  int allocate(const Place& place);
  void add(const Place& place, int fd);

  Session* session_;
  void* comm_;
  std::size_t size_;
  std::unique_ptr<std::byte[], Freer> memory_;  // null: another region's
  std::byte* data_ = nullptr;
  void* mhandle_ = nullptr;
};

// One message of `size` bytes over the link, content and reported size checked; flushed where it is GPU memory.
void exchange(Session& session, Link& link, std::size_t size, std::uint64_t seed, Place from = {}, Place into = {});

}  // namespace clustar::bench::conform
