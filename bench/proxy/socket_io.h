// Bounded TCP, under the names that bench knows it by.
#pragma once

#include "transport/rendezvous/socket_io.h"

namespace clustar::bench::proxy {

using rendezvous::Deadline;
using rendezvous::HostPort;
using rendezvous::Io;
using rendezvous::parse_host_port;
using rendezvous::poll_timeout_ms;
using rendezvous::read_all;
using rendezvous::read_some;
using rendezvous::tcp_accept;
using rendezvous::tcp_connect;
using rendezvous::tcp_listen;
using rendezvous::wait_for;
using rendezvous::write_all;
using rendezvous::write_some;

}  // namespace clustar::bench::proxy
