// Stands for libc10.so: the base class, and the function that throws it.
#include "exceptions.hpp"

namespace c10 {

int live_errors = 0;

Error::Error(SourceLocation place, std::string text)
    : text_(std::move(text)), place_(std::make_shared<std::string>(place.file)) {
  shown_ = text_ + " (" + *place_ + ":" + std::to_string(place.line) + ")";
  live_errors++;
}
Error::Error(const Error& other) : std::exception(other), text_(other.text_), shown_(other.shown_) { live_errors++; }
Error::~Error() { live_errors--; }
const char* Error::what() const noexcept { return shown_.c_str(); }
const char* Error::what_without_backtrace() const noexcept { return text_.c_str(); }

namespace detail {
void torchCheckFail(const char* function, const char* file, uint32_t line, const char* text) {
  throw Error({function, file, line}, text);
}
}  // namespace detail

}  // namespace c10
