#include "bench/micro/plugin_loop.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace clustar::bench::micro {

PluginLoop::PluginLoop(const std::string& path) {
  auto opened = proxy::NetPlugin::open(path);
  if (!opened) throw std::runtime_error(opened.error().message);
  net_ = std::move(*opened);
  context_of(1);
}

void* PluginLoop::context_of(std::uint64_t communicator) {
  void*& context = contexts_[communicator];
  if (context == nullptr) must(net_->init(communicator, nccl_abi::kTrafficClassUndefined, &context), "init");
  return context;
}

PluginLoop::~PluginLoop() {
  for (const Connection& connection : connections_) {
    if (connection.out_mr != nullptr) net_->dereg_mr(connection.send, connection.out_mr);
    if (connection.in_mr != nullptr) net_->dereg_mr(connection.recv, connection.in_mr);
    if (connection.send != nullptr) net_->close_send(connection.send);
    if (connection.recv != nullptr) net_->close_recv(connection.recv);
  }
  for (const auto& [communicator, context] : contexts_) {
    if (context != nullptr) net_->finalize(context);
  }
}

PluginLoop::Connection& PluginLoop::connect(std::uint64_t sender, std::uint64_t receiver) {
  Connection& made = connections_.emplace_back();
  proxy::Handle handle{};
  void* listening = nullptr;
  must(net_->listen(context_of(receiver), 0, &handle, &listening), "listen");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (made.send == nullptr || made.recv == nullptr) {
    if (made.send == nullptr) must(net_->connect(context_of(sender), 0, &handle, &made.send), "connect");
    if (made.recv == nullptr) must(net_->accept(listening, &made.recv), "accept");
    if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("no connection within 60 s");
  }
  must(net_->close_listen(listening), "closeListen");
  return made;
}

void PluginLoop::register_memory(Connection& connection, std::span<std::byte> out, std::span<std::byte> in) {
  must(net_->reg_mr(connection.send, out.data(), out.size(), nccl_abi::kPtrHost, &connection.out_mr), "regMr");
  must(net_->reg_mr(connection.recv, in.data(), in.size(), nccl_abi::kPtrHost, &connection.in_mr), "regMr");
}

void* PluginLoop::try_send(const Connection& connection, void* data, std::size_t bytes) {
  void* request = nullptr;
  must(net_->isend(connection.send, data, bytes, 1, connection.out_mr, nullptr, &request), "isend");
  return request;
}

void* PluginLoop::try_recv(Connection& connection, void* data, std::size_t bytes) {
  void* request = nullptr;
  int tag = 1;
  must(net_->irecv(connection.recv, 1, &data, &bytes, &tag, &connection.in_mr, nullptr, &request), "irecv");
  return request;
}

void* PluginLoop::send(const Connection& connection, void* data, std::size_t bytes) {
  void* request = nullptr;
  while (request == nullptr) request = try_send(connection, data, bytes);
  return request;
}

void* PluginLoop::recv(Connection& connection, void* data, std::size_t bytes) {
  void* request = nullptr;
  while (request == nullptr) request = try_recv(connection, data, bytes);
  return request;
}

bool PluginLoop::done(void*& request) {
  int done = 0, size = 0;
  must(net_->test(request, &done, &size), "test");
  if (done != 0) request = nullptr;
  return done != 0;
}

void PluginLoop::must(int result, const char* call) const {
  if (result == nccl_abi::kSuccess) return;
  throw std::runtime_error(std::string(call) + " failed: " + net_->last_warning());
}

}  // namespace clustar::bench::micro
