// Which of NCCL's datatypes and operators the collective network adds up.
#pragma once

#include <optional>
#include <string>

#include "paraexpress/engine/engine.h"

namespace clustar::nccl_plugin {

struct Arithmetic {
  paraexpress::DataType type = paraexpress::DataType::kInt8;
  paraexpress::Reduction reduction = paraexpress::Reduction::kSum;
};
// `data_type`: ncclDataType_t, `red_op`: ncclRedOp_t. Nothing: it is not offered, and NCCL then takes another algorithm
// for that collective. An average is a sum here, which NCCL's kernels divide.
std::optional<Arithmetic> arithmetic_of(int data_type, int red_op);
// For people.
const char* offered_reductions();

}  // namespace clustar::nccl_plugin
