// libclustar-fec.so: the table by ISA-L.
#include <isa-l/erasure_code.h>

#include "mlt/fec/table.h"

namespace clustar::mlt::fec {
namespace {

constexpr unsigned kPackets = Table::kMaxPackets;
constexpr unsigned kRows = Table::kMaxRows;
constexpr std::size_t kTableBytes = 32;  // of ISA-L's, per coefficient

const char* version() { return "ISA-L"; }

unsigned char coefficient(unsigned packets, unsigned row, unsigned packet) {
  return gf_inv(static_cast<unsigned char>((packets + row) ^ packet));
}

// ISA-L reads what it is given without saying so in its types.
void multiply(unsigned packets, unsigned rows, unsigned char* coefficients, std::size_t bytes,
              const unsigned char* const* data, unsigned char* const* out) {
  unsigned char tables[kTableBytes * kPackets * kRows];
  ec_init_tables(static_cast<int>(packets), static_cast<int>(rows), coefficients, tables);
  ec_encode_data(static_cast<int>(bytes), static_cast<int>(packets), static_cast<int>(rows), tables,
                 const_cast<unsigned char**>(data), const_cast<unsigned char**>(out));
}

bool in_range(unsigned packets, std::size_t bytes) {
  constexpr std::size_t kLongest = 1u << 16;
  return packets >= 1 && packets <= kPackets && bytes <= kLongest;
}

int encode(unsigned packets, unsigned row, std::size_t bytes, const unsigned char* const* data, unsigned char* out) {
  if (!in_range(packets, bytes) || row >= kRows) return 0;
  unsigned char coefficients[kPackets];
  for (unsigned j = 0; j < packets; ++j) coefficients[j] = coefficient(packets, row, j);
  multiply(packets, 1, coefficients, bytes, data, &out);
  return 1;
}

bool all_in_range(unsigned count, const unsigned char* numbers, unsigned end) {
  for (unsigned i = 0; i < count; ++i) {
    if (numbers[i] >= end) return false;
    for (unsigned j = 0; j < i; ++j) {
      if (numbers[i] == numbers[j]) return false;
    }
  }
  return true;
}

// With the missing packets m, the others d and the parity p = A d + B m: m = B^-1 p + (B^-1 A) d.
int rebuild(unsigned packets, unsigned count, const unsigned char* places, const unsigned char* rows, std::size_t bytes,
            const unsigned char* const* data, unsigned char* const* out) {
  if (!in_range(packets, bytes) || count < 1 || count > kRows || count > packets) return 0;
  if (!all_in_range(count, places, packets) || !all_in_range(count, rows, kRows)) return 0;
  unsigned char of_missing[kRows * kRows];
  unsigned char inverse[kRows * kRows];
  for (unsigned i = 0; i < count; ++i) {
    for (unsigned j = 0; j < count; ++j) of_missing[i * count + j] = coefficient(packets, rows[i], places[j]);
  }
  if (gf_invert_matrix(of_missing, inverse, static_cast<int>(count)) != 0) return 0;
  unsigned char coefficients[kRows * kPackets];
  for (unsigned i = 0; i < count; ++i) {
    unsigned char* of_this = coefficients + i * packets;
    for (unsigned j = 0; j < packets; ++j) {
      of_this[j] = 0;
      for (unsigned row = 0; row < count; ++row) {
        of_this[j] ^= gf_mul(inverse[i * count + row], coefficient(packets, rows[row], j));
      }
    }
    for (unsigned row = 0; row < count; ++row) of_this[places[row]] = inverse[i * count + row];
  }
  multiply(packets, count, coefficients, bytes, data, out);
  return 1;
}

}  // namespace
}  // namespace clustar::mlt::fec

namespace fec = clustar::mlt::fec;
extern "C" __attribute__((visibility("default"))) const fec::Table clustar_fec;
const fec::Table clustar_fec = {fec::Table::kAbi, sizeof(fec::Table), fec::version, fec::encode, fec::rebuild};
