// What the sources use of libstdc++ 11 and libstdc++ 10 lacks: the compiler includes this before each file, in a build
// for an older system only (packaging/older_toolchain.cmake). C++ allows nobody to add to namespace std; here we
// complete a library that we know, and nothing of it leaves the binary. With libstdc++ 11 and later this adds nothing.
#pragma once

#if defined(__cplusplus) && __cplusplus >= 202002L
#include <locale.h>  // NOLINT(modernize-deprecated-headers): newlocale is POSIX's

#include <bit>
#include <cerrno>
#include <charconv>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>

namespace clustar::older {

// The "C" locale, whatever the process has set; never freed, as those who call may outlive any owner.
inline locale_t plain_locale() {
  static const locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  return plain;
}

// Whether a number may begin here for std::from_chars in chars_format::general: no space, plus sign or hexadecimal
// prefix.
inline bool begins_number(const char* first, const char* last) {
  if (first != last && *first == '-') ++first;
  if (first == last) return false;
  if (*first == '0' && last - first > 1 && (first[1] == 'x' || first[1] == 'X')) return false;
  return (*first >= '0' && *first <= '9') || *first == '.' || *first == 'i' || *first == 'I' || *first == 'n' ||
         *first == 'N';
}

// As std::from_chars(first, last, double&), but for "0x...", of which that takes the "0".
inline std::from_chars_result from_chars(const char* first, const char* last, double& value) {
  if (!begins_number(first, last)) return {first, std::errc::invalid_argument};
  const std::string text(first, last);
  char* end = nullptr;
  errno = 0;
  const double found = strtod_l(text.c_str(), &end, plain_locale());
  if (end == text.c_str()) return {first, std::errc::invalid_argument};
  const char* const stop = first + (end - text.c_str());
  if (errno == ERANGE) return {stop, std::errc::result_out_of_range};
  value = found;
  return {stop, std::errc()};
}

// As std::to_chars(first, last, double): the shortest text that is read as the same value.
inline std::to_chars_result to_chars(char* first, char* last, double value) {
  char text[40];
  int length = 0;
  const locale_t before = uselocale(plain_locale());
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10; ++digits) {
    length = std::snprintf(text, sizeof text, "%.*g", digits, value);
    if (value != value || strtod_l(text, nullptr, plain_locale()) == value) break;
  }
  uselocale(before);
  if (length < 0 || length > last - first) return {last, std::errc::value_too_large};
  std::memcpy(first, text, static_cast<std::size_t>(length));
  return {first + length, std::errc()};
}

template <class To, class From>
constexpr To bit_cast(const From& from) noexcept {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To> && std::is_trivially_copyable_v<From>);
  return __builtin_bit_cast(To, from);
}

template <class Array>
std::unique_ptr<Array> make_unique_for_overwrite(std::size_t count) {
  static_assert(std::is_unbounded_array_v<Array>);
  return std::unique_ptr<Array>(new std::remove_extent_t<Array>[count]);
}

}  // namespace clustar::older

namespace std {
#if !defined(__cpp_lib_bit_cast)
using clustar::older::bit_cast;
#endif
#if !defined(__cpp_lib_smart_ptr_for_overwrite)
using clustar::older::make_unique_for_overwrite;
#endif
// libstdc++ defines __cpp_lib_to_chars from 11 on, where it has both for double.
#if !defined(__cpp_lib_to_chars)
using clustar::older::from_chars;
using clustar::older::to_chars;
#endif
}  // namespace std
#endif
