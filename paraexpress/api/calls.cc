#include "paraexpress/api/calls.h"

#include <clustar/paraexpress.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/rendezvous/socket_io.h"

namespace clustar::paraexpress {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return CLUSTARPX_EINVAL;
    case ErrorCode::kInvalidUsage: return CLUSTARPX_EUSAGE;
    case ErrorCode::kUnavailable: return CLUSTARPX_ESYSTEM;
    case ErrorCode::kSystem: return CLUSTARPX_ESYSTEM;
    case ErrorCode::kRemote: return CLUSTARPX_EREMOTE;
    case ErrorCode::kInternal: return CLUSTARPX_EINTERNAL;
  }
  return CLUSTARPX_EINTERNAL;
}

// A port stands behind the last colon, unless that is within [IPv6].
std::vector<std::string> with_ports(const std::string& hosts) {
  std::vector<std::string> all;
  std::string port = ":29555";
  for (std::size_t at = 0; at <= hosts.size();) {
    const std::size_t end = std::min(hosts.find(',', at), hosts.size());
    std::string host = hosts.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = host.rfind(':'), bracket = host.rfind(']');
    if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
      if (all.empty()) port = host.substr(colon);
      host.resize(colon);
    }
    all.push_back(host + port);
  }
  return all;
}

}  // namespace

std::string& last_error() {
  thread_local std::string text;
  return text;
}

int report(const Result<void>& result) {
  if (result) return CLUSTARPX_OK;
  last_error() = result.error().message;
  return status_of(result.error().code);
}

int report_exception(bool no_memory) noexcept {
  last_error().clear();  // there may be no memory for a text
  return no_memory ? CLUSTARPX_ESYSTEM : CLUSTARPX_EINTERNAL;
}

Result<std::vector<std::string>> addresses_of(const char* root, const char* hosts, int ranks) {
  if ((root != nullptr) == (hosts != nullptr)) {
    return wrong("root and hosts: allowed: one of them, the other null");
  }
  if (root != nullptr) return std::vector<std::string>{root};
  const std::string names = hosts;
  const auto all = with_ports(names);
  const int count = names.empty() ? 0 : static_cast<int>(all.size());
  if (ranks > 0 ? count == ranks : count > 0) return all;
  return wrong(fmt::format("hosts '{}' names {}, ranks is {}; allowed: a host per rank", names, count, ranks));
}

Result<Met> meet(const char* root, const char* hosts, int rank, int ranks, int helpers) {
  rendezvous::Bootstrap::Options meeting;
  meeting.rank = rank;
  meeting.size = ranks + helpers;
  meeting.required = ranks;
  if (meeting.size > 1 || root != nullptr || hosts != nullptr) {
    const auto addresses = addresses_of(root, hosts, ranks);
    if (!addresses) return tl::unexpected(addresses.error());
    meeting.root = addresses->front();
    if (const auto where = rendezvous::parse_host_port(meeting.root); !where) return tl::unexpected(where.error());
  }
  auto transport = OwnTransport::choose(rank);
  if (!transport) return tl::unexpected(transport.error());
  auto bootstrap = rendezvous::Bootstrap::join(meeting);
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  return Met{meeting.root, std::move(*transport), std::move(*bootstrap)};
}

}  // namespace clustar::paraexpress
