// The text of loss_rules and loss_traffic_classes.
//
// loss_rules            RULE ; RULE ; ...      the first that fits a collective counts
// RULE                  KEY=VALUE , ...        each key once, in any order; what is left out fits everything
//     comm              ncclConfig_t.commName, with * and ?; empty: communicators without a name
//     ranks             N | N-M | N- | -M
//     bytes             the same, of one rank's input (sendrecv: of one send), with K, M, G (powers of 1024)
//     class             the same, of ncclConfig_t.trafficClass; one that is not set fits no range
//     func              allreduce | reducescatter | any | sendrecv
//     p                 0 to 0.1; loss_tolerance where it is left out
// loss_traffic_classes  N | N-M , ...          each a rule of its own, behind all of loss_rules
//
// `any`, or no func at all, is a ring's two reductions. sendrecv is never implied: it is the user's word that the sends
// and receives of the communicator carry float gradients, and that they look up what of them is missing.
//
// Blanks count nowhere but inside a name.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "nccl_plugin/loss/policy.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// `tolerance_ppm` is that of rules without p. Blank text: no rules. Error: names the rule, its key and what is allowed.
Result<std::vector<LossRule>> parse_loss_rules(std::string_view text, std::uint32_t tolerance_ppm);
// One rule per range.
Result<std::vector<LossRule>> parse_traffic_classes(std::string_view text, std::uint32_t tolerance_ppm);

// `pattern` with * (anything, or nothing) and ? (one character); time is at most the product of the lengths.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace clustar::nccl_plugin
