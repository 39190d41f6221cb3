// What a program of libfabric hears of its sends, over the provider as libfabric loads it: on loopback, to a process of
// its own that receives and may be killed.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace clustar::libfabric_shim::provider {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint64_t kTag = 7;

template <class Object>
struct Close {
  void operator()(Object* object) const { fi_close(&object->fid); }
};
template <class Object>
using Fid = std::unique_ptr<Object, Close<Object>>;

struct Heard {
  int completions = 0;
  std::vector<int> errors;
};

class Program {
 public:
  explicit Program(bool selective) {
    setenv("FI_PROVIDER_PATH", PROVIDER_FOLDER, 1);
    setenv("CLUSTAR_SOCKET_IFNAME", "lo", 1);
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_TAGGED | FI_MSG;
    hints->mode = FI_CONTEXT;
    hints->addr_format = FI_SOCKADDR_IN;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
    hints->fabric_attr->prov_name = strdup("clustar");
    fi_info* info = nullptr;
    must(fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info), "fi_getinfo");
    fi_freeinfo(hints);
    fid_fabric* fabric = nullptr;
    must(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    must(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    domain_.reset(domain);
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_TAGGED;
    for (Fid<fid_cq>* one : {&sends_, &receives_}) {
      fid_cq* opened = nullptr;
      must(fi_cq_open(domain, &queue, &opened, nullptr), "fi_cq_open");
      one->reset(opened);
    }
    fi_cntr_attr counter{};
    counter.events = FI_CNTR_EVENTS_COMP;
    fid_cntr* counted = nullptr;
    must(fi_cntr_open(domain, &counter, &counted, nullptr), "fi_cntr_open");
    counter_.reset(counted);
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    fid_av* vector = nullptr;
    must(fi_av_open(domain, &addresses, &vector, nullptr), "fi_av_open");
    addresses_.reset(vector);
    fid_ep* endpoint = nullptr;
    must(fi_endpoint(domain, info, &endpoint, nullptr), "fi_endpoint");
    fi_freeinfo(info);
    endpoint_.reset(endpoint);
    must(fi_ep_bind(endpoint, &sends_->fid, FI_TRANSMIT | (selective ? FI_SELECTIVE_COMPLETION : 0)), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &receives_->fid, FI_RECV), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &counter_->fid, FI_SEND), "fi_ep_bind");
    must(fi_ep_bind(endpoint, &addresses_->fid, 0), "fi_ep_bind");
    must(fi_enable(endpoint), "fi_enable");
  }

  fid_ep* endpoint() const { return endpoint_.get(); }
  void close_endpoint() { endpoint_.reset(); }
  std::uint64_t counted() const { return fi_cntr_read(counter_.get()); }
  std::uint64_t counted_errors() const { return fi_cntr_readerr(counter_.get()); }
  fid_cq* receives() const { return receives_.get(); }
  sockaddr_in address() const {
    sockaddr_in own{};
    std::size_t length = sizeof own;
    must(fi_getname(&endpoint_->fid, &own, &length), "fi_getname");
    return own;
  }
  fi_addr_t know(const sockaddr_in& peer) {
    fi_addr_t known = FI_ADDR_UNSPEC;
    EXPECT_EQ(fi_av_insert(addresses_.get(), &peer, 1, &known, 0, nullptr), 1);
    return known;
  }
  // Until so many sends were counted, and then for what may come too much.
  Heard listen(std::uint64_t operations) {
    Heard heard;
    const auto limit = Clock::now() + std::chrono::seconds(20);
    auto end = limit;
    while (Clock::now() < end) {
      fi_cq_tagged_entry entry{};
      const ssize_t read = fi_cq_read(sends_.get(), &entry, 1);
      heard.completions += read == 1 ? 1 : 0;
      if (read == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(sends_.get(), &error, 0);
        heard.errors.push_back(error.err);
      }
      fi_cq_read(receives_.get(), &entry, 1);  // the other side of the endpoint makes progress, too
      if (end == limit && counted() + counted_errors() >= operations)
        end = Clock::now() + std::chrono::milliseconds(300);
    }
    return heard;
  }

 private:
  static void must(long code, const char* call) {
    if (code == 0) return;
    std::fprintf(stderr, "%s: %s\n", call, fi_strerror(static_cast<int>(-code)));
    std::abort();
  }

  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_cq> sends_, receives_;
  Fid<fid_cntr> counter_;
  Fid<fid_av> addresses_;
  Fid<fid_ep> endpoint_;
};

// Receives whatever comes, each by a receive that is posted, and writes how long it was into its pipe.
class Receiver {
 public:
  Receiver() {
    if (pipe(pipe_) != 0 || (process_ = fork()) < 0) std::abort();
    if (process_ == 0) receive();
    EXPECT_EQ(read(pipe_[0], &address_, sizeof address_), static_cast<ssize_t>(sizeof address_));
  }
  ~Receiver() {
    end();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  const sockaddr_in& address() const { return address_; }
  std::size_t next_length() {
    std::size_t length = 0;
    EXPECT_EQ(read(pipe_[0], &length, sizeof length), static_cast<ssize_t>(sizeof length));
    return length;
  }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  [[noreturn]] void receive() {
    alarm(60);
    Program program(false);
    const sockaddr_in own = program.address();
    std::vector<char> room(1 << 20);
    for (int i = 0; i < 8; ++i) {
      fi_trecv(program.endpoint(), room.data(), room.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, room.data());
    }
    bool told = write(pipe_[1], &own, sizeof own) == static_cast<ssize_t>(sizeof own);
    while (told) {
      fi_cq_tagged_entry entry{};
      if (fi_cq_read(program.receives(), &entry, 1) != 1) continue;
      told = write(pipe_[1], &entry.len, sizeof entry.len) == static_cast<ssize_t>(sizeof entry.len);
    }
    _exit(1);
  }

  int pipe_[2]{};
  pid_t process_ = 0;
  sockaddr_in address_{};
};

class Completions : public ::testing::Test {
 protected:
  int send(Program& from, fi_addr_t to, std::size_t bytes) {
    return static_cast<int>(fi_tsend(from.endpoint(), bytes_.data(), bytes, nullptr, to, kTag, &bytes_));
  }
  std::vector<char> bytes_ = std::vector<char>(1 << 20, 5);
};

TEST_F(Completions, EverySendIsCountedAndOnlyThoseThatAskHaveAnEntry) {
  Receiver receiver;
  Program program(true);
  const fi_addr_t to = program.know(receiver.address());
  EXPECT_EQ(fi_tinject(program.endpoint(), bytes_.data(), 8, to, kTag), 0);
  EXPECT_EQ(send(program, to, 64), 0);
  EXPECT_EQ(send(program, to, 32768), 0);
  iovec part{bytes_.data(), 64};
  fi_msg_tagged message{};
  message.msg_iov = &part;
  message.iov_count = 1;
  message.addr = to;
  message.tag = kTag;
  message.context = &bytes_;
  EXPECT_EQ(fi_tsendmsg(program.endpoint(), &message, FI_COMPLETION), 0);
  const Heard heard = program.listen(4);
  EXPECT_EQ(heard.completions, 1);
  EXPECT_TRUE(heard.errors.empty());
  EXPECT_EQ(program.counted(), 4u);
}

TEST_F(Completions, ASendToAPeerThatIsGoneFailsOnce) {
  for (const std::size_t bytes : {std::size_t{65536}, std::size_t{1} << 20}) {
    Receiver receiver;
    Program program(false);
    const fi_addr_t to = program.know(receiver.address());
    ASSERT_EQ(send(program, to, 64), 0);
    ASSERT_EQ(program.listen(1).completions, 1);
    receiver.end();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    ASSERT_EQ(send(program, to, bytes), 0);
    const Heard heard = program.listen(2);
    EXPECT_EQ(heard.errors.size(), 1u) << bytes;
    EXPECT_EQ(heard.completions, 0) << bytes;
    EXPECT_EQ(program.counted_errors(), 1u) << bytes;
  }
}

TEST_F(Completions, ASendWithoutAnEntryTellsItsErrorAllTheSame) {
  Receiver receiver;
  Program program(true);
  const fi_addr_t to = program.know(receiver.address());
  receiver.end();
  ASSERT_EQ(send(program, to, 64), 0);
  const Heard heard = program.listen(1);
  EXPECT_EQ(heard.errors.size(), 1u);
  EXPECT_EQ(program.counted_errors(), 1u);
}

TEST_F(Completions, ClosingDeliversWhatWasInjected) {
  setenv("FI_CLUSTAR_EAGER_BYTES", "0", 1);  // so that it is asked for, as a long message
  Receiver receiver;
  Program program(false);
  const fi_addr_t to = program.know(receiver.address());
  ASSERT_EQ(fi_tinject(program.endpoint(), bytes_.data(), 64, to, kTag), 0);
  program.close_endpoint();
  EXPECT_EQ(receiver.next_length(), 64u);
  unsetenv("FI_CLUSTAR_EAGER_BYTES");
}

TEST_F(Completions, LibfabricOverLibfabricIsRefused) {
  setenv("FI_PROVIDER_PATH", PROVIDER_FOLDER, 1);
  setenv("FI_CLUSTAR_TRANSPORT", "ofi", 1);
  fi_info* const hints = fi_allocinfo();
  hints->fabric_attr->prov_name = strdup("clustar");
  fi_info* info = nullptr;
  EXPECT_EQ(fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info), -FI_ENODATA);
  fi_freeinfo(hints);
  unsetenv("FI_CLUSTAR_TRANSPORT");
}

}  // namespace
}  // namespace clustar::libfabric_shim::provider
