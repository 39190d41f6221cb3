// Three ends over verbs UD: two on rxe_a and one on rxe_b.
#pragma once

#include <functional>
#include <vector>

#include "tests/conformance/packet_io_under_test.h"
#include "transport/io/verbs/ud_io.h"

namespace clustar::tests {

// Of a device that scripts/softroce-vm brings along; all handles to peers are there when it returns.
Result<void> await_ready(const transport::io::verbs::UdIo& io, transport::io::PeerId peer);
std::vector<transport::conformance::PacketIoUnderTest> ud_under_test();

}  // namespace clustar::tests
