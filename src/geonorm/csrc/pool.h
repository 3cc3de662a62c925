// A few threads that wait for work. Which thread does which chunk is not fixed, what a chunk computes is: results do
// not depend on the number of threads.
#pragma once
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace geonorm {

class Pool {
   public:
    // The pool of this process. A forked child gets a new one: it does not have its parent's threads. Without a lock: a
    // child that was forked while another thread held it would wait forever.
    static Pool& own() {
        static std::atomic<Pool*> current{nullptr};  // never freed: threads may wait in it until the process ends
        Pool* found = current.load();
        while (!found || found->process_ != getpid()) {
            Pool* made = new Pool;
            if (current.compare_exchange_strong(found, made)) return *made;
            delete made;  // another thread was faster; `found` is its pool
        }
        return *found;
    }

    // work(context, chunk) for every chunk below `chunks`, by up to `threads` threads, this one included.
    void run(int64_t chunks, int64_t threads, void (*work)(void*, int64_t), void* context) {
        threads = threads < chunks ? threads : chunks;
        std::unique_lock<std::mutex> turn(busy_, std::defer_lock);
        if (threads <= 1 || !turn.try_lock()) {  // a concurrent second caller works without the pool
            for (int64_t i = 0; i < chunks; i++) work(context, i);
            return;
        }
        {
            std::lock_guard<std::mutex> lock(mutex_);
            grow(threads - 1);
            work_ = work, context_ = context, chunks_ = chunks, helpers_ = threads - 1, running_ = helpers_;
            if (running_ > started_) helpers_ = running_ = started_;
            next_.store(0);
            round_++;
        }
        wake_.notify_all();
        take();
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return running_ == 0; });
    }

   private:
    void grow(int64_t wanted) {
        while (started_ < wanted && started_ < 63) {
            try {
                std::thread([this, id = started_, seen = round_]() mutable { serve(id, seen); }).detach();
            } catch (...) {
                return;
            }
            started_++;
        }
    }
    void serve(int64_t id, uint64_t seen) {
        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (id >= helpers_) continue;
            }
            take();
            std::lock_guard<std::mutex> lock(mutex_);
            if (--running_ == 0) done_.notify_one();
        }
    }
    void take() {
        for (int64_t i; (i = next_.fetch_add(1)) < chunks_;) work_(context_, i);
    }

    const pid_t process_ = getpid();
    std::mutex busy_, mutex_;
    std::condition_variable wake_, done_;
    std::atomic<int64_t> next_{0};
    void (*work_)(void*, int64_t) = nullptr;
    void* context_ = nullptr;
    int64_t chunks_ = 0, helpers_ = 0, running_ = 0, started_ = 0;
    uint64_t round_ = 0;
};

}  // namespace geonorm
