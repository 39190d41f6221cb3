// For builds of tests: what libfabric 1.20's header declares of registrations beside the installed one's, so that the
// code for it compiles and is called where the installed one is older. Facts of fi_mr(3).
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>

#if FI_MAJOR_VERSION == 1 && FI_MINOR_VERSION < 20
#define fi_mr_attr fi_mr_attr_of_old
#include_next <rdma/fi_domain.h>
#undef fi_mr_attr

#define FI_MR_DMABUF (1ULL << 40)

struct fi_mr_dmabuf {
  int fd;
  uint64_t offset;
  size_t len;
  void* base_addr;
};

// As long as the old one: a union has taken the place of mr_iov.
struct fi_mr_attr {
  union {
    const struct iovec* mr_iov;
    const struct fi_mr_dmabuf* dmabuf;
  };
  size_t iov_count;
  uint64_t access;
  uint64_t offset;
  uint64_t requested_key;
  void* context;
  size_t auth_key_size;
  uint8_t* auth_key;
  enum fi_hmem_iface iface;
  union {
    uint64_t reserved;
    int cuda;
    int ze;
    int neuron;
    int synapseai;
  } device;
};
static_assert(sizeof(fi_mr_attr) == sizeof(fi_mr_attr_of_old));

inline int fi_mr_regattr(fid_domain* domain, const fi_mr_attr* attributes, uint64_t flags, fid_mr** made) {
  return fi_mr_regattr(domain, reinterpret_cast<const fi_mr_attr_of_old*>(attributes), flags, made);
}

// And of endpoints, 1.18's option.
#include <rdma/fi_endpoint.h>
inline constexpr int FI_OPT_CUDA_API_PERMITTED = FI_OPT_XPU_TRIGGER + 1;
#undef FI_MINOR_VERSION
#define FI_MINOR_VERSION 20
#else
#include_next <rdma/fi_domain.h>
#endif
