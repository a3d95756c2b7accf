// Classes with the names and the shape of PyTorch's exceptions, to be thrown in its place.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#define VISIBLE __attribute__((visibility("default")))

namespace c10 {

struct SourceLocation {
  const char* function;
  const char* file;
  uint32_t line;
};

// How many exceptions live, so that a test sees each destroyed once.
extern VISIBLE int live_errors;

class VISIBLE Error : public std::exception {
  std::string text_;
  std::vector<std::string> context_;
  std::shared_ptr<std::string> place_;
  std::string shown_;
  const void* caller_ = nullptr;

 public:
  Error(SourceLocation place, std::string text);
  Error(const Error& other);
  ~Error() override;
  const char* what() const noexcept override;
  virtual const char* what_without_backtrace() const noexcept;
};

class VISIBLE OutOfMemoryError : public Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] VISIBLE void torchCheckFail(const char* function, const char* file, uint32_t line, const char* text);
}  // namespace detail

}  // namespace c10
