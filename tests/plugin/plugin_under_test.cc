#include "tests/plugin/plugin_under_test.h"

#include <sched.h>

#include <chrono>
#include <cstdlib>

namespace clustar::tests {

std::unique_ptr<NetPlugin> open_plugin(int version, const std::string& path) {
  auto opened = NetPlugin::open(path, version);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(*opened) : nullptr;
}

Environment::Environment(const Variables& variables) {
  Variables all{{"CLUSTAR_SOCKET_IFNAME", "=lo"}};
  for (const auto& [name, value] : variables) all[name] = value;
  for (const auto& [name, value] : all) {
    setenv(name.c_str(), value.c_str(), 1);
    names_.push_back(name);
  }
}

Environment::~Environment() {
  for (const std::string& name : names_) unsetenv(name.c_str());
}

bool poll_until(const std::function<bool()>& step) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!step()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    sched_yield();
  }
  return true;
}

PluginConnection connect_to_self(NetPlugin& plugin, void* context, int device) {
  PluginConnection connection;
  Handle handle{};
  void* listen = nullptr;
  EXPECT_EQ(plugin.listen(context, device, &handle, &listen), nccl_abi::kSuccess);
  EXPECT_TRUE(poll_until([&] {
    if (connection.send == nullptr) {
      EXPECT_EQ(plugin.connect(context, device, &handle, &connection.send), nccl_abi::kSuccess);
    }
    if (connection.recv == nullptr) {
      EXPECT_EQ(plugin.accept(listen, &connection.recv), nccl_abi::kSuccess);
    }
    return connection.send != nullptr && connection.recv != nullptr;
  }));
  EXPECT_EQ(plugin.close_listen(listen), nccl_abi::kSuccess);
  return connection;
}

void transfer(NetPlugin& plugin, const PluginConnection& connection, std::size_t size) {
  std::vector<unsigned char> from(size);
  std::vector<unsigned char> to(size, 0xee);
  for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<unsigned char>(i * 31 + i / 251);
  void* from_mr = nullptr;
  void* to_mr = nullptr;
  ASSERT_EQ(plugin.reg_mr(connection.send, from.data(), size, nccl_abi::kPtrHost, &from_mr), nccl_abi::kSuccess);
  ASSERT_EQ(plugin.reg_mr(connection.recv, to.data(), size, nccl_abi::kPtrHost, &to_mr), nccl_abi::kSuccess);
  void* send = nullptr;
  void* recv = nullptr;
  void* data = to.data();
  int tag = 3;
  ASSERT_EQ(plugin.irecv(connection.recv, 1, &data, &size, &tag, &to_mr, nullptr, &recv), nccl_abi::kSuccess);
  ASSERT_NE(recv, nullptr);
  ASSERT_TRUE(poll_until([&] {
    EXPECT_EQ(plugin.isend(connection.send, from.data(), size, tag, from_mr, nullptr, &send), nccl_abi::kSuccess);
    return send != nullptr;
  }));
  int sent = 0;
  int received = 0;
  int sent_size = -1;
  int received_size = -1;
  ASSERT_TRUE(poll_until([&] {
    if (sent == 0) {
      EXPECT_EQ(plugin.test(send, &sent, &sent_size), nccl_abi::kSuccess);
    }
    if (received == 0) {
      EXPECT_EQ(plugin.test(recv, &received, &received_size), nccl_abi::kSuccess);
    }
    return sent == 1 && received == 1;
  }));
  EXPECT_EQ(sent_size, static_cast<int>(size));
  EXPECT_EQ(received_size, static_cast<int>(size));
  EXPECT_EQ(from, to);
  EXPECT_EQ(plugin.dereg_mr(connection.send, from_mr), nccl_abi::kSuccess);
  EXPECT_EQ(plugin.dereg_mr(connection.recv, to_mr), nccl_abi::kSuccess);
}

void close(NetPlugin& plugin, const PluginConnection& connection) {
  EXPECT_EQ(plugin.close_send(connection.send), nccl_abi::kSuccess);
  EXPECT_EQ(plugin.close_recv(connection.recv), nccl_abi::kSuccess);
}

std::string joined_log(NetPlugin& plugin) {
  std::string text;
  for (const auto& line : plugin.take_log()) text += line.text + "\n";
  return text;
}

}  // namespace clustar::tests
