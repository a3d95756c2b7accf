// Stands for libc10_cuda.so: it throws the derived class itself, and so has its type and its virtual functions.
#include "exceptions.hpp"

extern "C" VISIBLE void throw_out_of_memory() { throw c10::OutOfMemoryError({"f", "g", 1}, "native"); }
