// A free with another stream, on the library that imitates NVIDIA's driver, whose streams the program can stop.
#include "cccl.hpp"

#include <dlfcn.h>

#include <condition_variable>
#include <mutex>

// The driver's functions, from the library that Cachette uses.
template <class Function> static Function driver(char const *name) {
    static void *const library = dlopen(std::getenv("CACHETTE_CUDA_LIBRARY"), RTLD_NOW);
    CHECK(library != nullptr);
    void *const found = dlsym(library, name);
    CHECK(found != nullptr);
    return reinterpret_cast<Function>(found);
}

// While it lives, the work that is queued later in the stream does not run.
class hold {
public:
    explicit hold(cuda::stream_ref stream) {
        auto const launch = driver<int (*)(void *, void (*)(void *), void *)>("cuLaunchHostFunc");
        CHECK(launch(stream.get(), wait, this) == 0);
    }
    ~hold() {
        std::unique_lock<std::mutex> lock{mutex_};
        released_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return ended_; });
    }

private:
    static void wait(void *given) {
        auto &self = *static_cast<hold *>(given);
        std::unique_lock<std::mutex> lock{self.mutex_};
        self.changed_.wait(lock, [&self] { return self.released_; });
        self.ended_ = true;
        self.changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    bool released_ = false, ended_ = false;
};

int main() {
    void *context = nullptr;
    CHECK(driver<int (*)(unsigned)>("cuInit")(0) == 0);
    CHECK(driver<int (*)(void **, int)>("cuDevicePrimaryCtxRetain")(&context, 0) == 0);
    CHECK(driver<int (*)(void *)>("cuCtxPushCurrent_v2")(context) == 0);

    cachette::memory_resource memory{"cuda:0", ""};
    auto const own = make_stream(memory), other = make_stream(memory);
    void *first = memory.allocate(own, MIB);
    void *second = nullptr;
    {
        hold const stopped{other};
        memory.deallocate(other, first, MIB);
        CHECK(allocated(memory) == 0);
        second = memory.allocate(own, MIB);
        CHECK(second != first);
    }
    CHECK(cachette_stream_synchronize(memory.allocator(), other.get()) == CACHETTE_OK);
    void *third = memory.allocate(own, MIB);
    CHECK(third == first);
    memory.deallocate(own, second, MIB);
    memory.deallocate(own, third, MIB);

    // Its own stream needs no wait, stopped or not.
    void *next = memory.allocate(own, MIB);
    hold const stopped{own};
    memory.deallocate(own, next, MIB);
    CHECK(memory.allocate(own, MIB) == next);
}
