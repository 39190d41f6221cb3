// What is offered: fi_getinfo.
#pragma once

#include <rdma/fabric.h>

#include <cstdint>

namespace clustar::libfabric_shim::provider {

inline constexpr std::uint64_t kPrimaryCaps = FI_MSG | FI_TAGGED | FI_SEND | FI_RECV;
inline constexpr std::uint64_t kDomainCaps = FI_LOCAL_COMM | FI_REMOTE_COMM;
inline constexpr std::uint64_t kCaps = kPrimaryCaps | FI_SOURCE | FI_DIRECTED_RECV | kDomainCaps;
// FI_TRANSMIT_COMPLETE: the transport has it, and what it loses it sends again.
inline constexpr std::uint64_t kSendFlags = FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE;

// As fi_provider::getinfo. -FI_ENODATA: nothing of ours fits.
int get_info(std::uint32_t version, const char* node, const char* service, std::uint64_t flags, const fi_info* hints,
             fi_info** info);

}  // namespace clustar::libfabric_shim::provider
