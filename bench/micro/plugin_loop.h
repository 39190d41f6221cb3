// A plugin in this process with both ends of its connections, for benchmarks of its calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "bench/proxy/net_plugin.h"

namespace clustar::bench::micro {

// A call that fails throws std::runtime_error with the plugin's last warning. Threads may use different connections at
// once; connect() is for one at a time.
class PluginLoop {
 public:
  struct Connection {
    void* send = nullptr;
    void* recv = nullptr;
    void* out_mr = nullptr;
    void* in_mr = nullptr;
  };

  explicit PluginLoop(const std::string& path);
  // Closes every connection.
  ~PluginLoop();
  PluginLoop(const PluginLoop&) = delete;
  PluginLoop& operator=(const PluginLoop&) = delete;

  // Both ends, within 60 s; it stays where it is until the loop's end. Each end belongs to the communicator of this
  // number, 1 or more.
  Connection& connect(std::uint64_t sender = 1, std::uint64_t receiver = 1);
  // What is sent from and received into.
  void register_memory(Connection& connection, std::span<std::byte> out, std::span<std::byte> in);

  // With tag 1; nullptr: no room now.
  void* try_send(const Connection& connection, void* data, std::size_t bytes);
  void* try_recv(Connection& connection, void* data, std::size_t bytes);
  // The same until there is room.
  void* send(const Connection& connection, void* data, std::size_t bytes);
  void* recv(Connection& connection, void* data, std::size_t bytes);
  // True: the request is done, and `request` is nullptr from now on.
  bool done(void*& request);

  proxy::NetPlugin& net() { return *net_; }
  // `result` is a call's.
  void must(int result, const char* call) const;

 private:
  void* context_of(std::uint64_t communicator);

  std::unique_ptr<proxy::NetPlugin> net_;
  std::map<std::uint64_t, void*> contexts_;  // by communicator
  std::list<Connection> connections_;
};

}  // namespace clustar::bench::micro
