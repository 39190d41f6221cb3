// A program of libfabric, over the provider as libfabric loads it, on loopback.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace clustar::libfabric_shim::provider {

inline constexpr std::uint64_t kTag = 7;

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

// As a program of libfabric has it: a fabric, a domain, an endpoint, and what it is bound to.
class Program {
 public:
  // `port`: of the endpoint; null: the kernel chooses.
  explicit Program(bool selective, const char* port = nullptr) {
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
    must(fi_getinfo(FI_VERSION(1, 14), port == nullptr ? nullptr : "127.0.0.1", port, port == nullptr ? 0 : FI_SOURCE,
                    hints, &info),
         "fi_getinfo");
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
  fid_cq* sends() const { return sends_.get(); }
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
  Heard listen(std::uint64_t operations, std::chrono::seconds patience = std::chrono::seconds(20)) {
    using Now = std::chrono::steady_clock;
    Heard heard;
    const auto limit = Now::now() + patience;
    auto end = limit;
    while (Now::now() < end) {
      fi_cq_tagged_entry entry{};
      const ssize_t read = fi_cq_read(sends_.get(), &entry, 1);
      heard.completions += read == 1 ? 1 : 0;
      if (read == -FI_EAVAIL) {
        fi_cq_err_entry error{};
        fi_cq_readerr(sends_.get(), &error, 0);
        heard.errors.push_back(error.err);
      }
      fi_cq_read(receives_.get(), &entry, 1);  // the other side of the endpoint makes progress, too
      if (end == limit && counted() + counted_errors() >= operations) end = Now::now() + std::chrono::milliseconds(300);
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

}  // namespace clustar::libfabric_shim::provider
