/* arena.hpp - arena.h for C++17: classes that own an arena or a pool, and allocators for
 * containers.
 *
 *     cairn::arena                    owns an arena
 *     cairn::arena_scope              rewinds an arena to where it was when the scope began
 *     cairn::arena_resource           a std::pmr::memory_resource that takes memory from an arena
 *     cairn::arena_allocator<T>       a standard allocator in an arena, without virtual calls
 *     cairn::pool<T>                  owns a pool of T: create() and destroy() objects
 *
 * Functions throw std::bad_alloc if there is no memory. Nothing else throws except constructors of
 * T. Deallocation through a resource or an allocator does nothing: memory is freed when the arena
 * is rewound, reset or destroyed. After that, objects in that memory must not be used. They must
 * not be destroyed either, unless their destructors touch nothing in the arena.
 */
#ifndef CAIRN_ARENA_HPP
#define CAIRN_ARENA_HPP

#include <cairn/arena.h>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>

namespace cairn
{

namespace detail
{

template <typename Pointer> Pointer or_throw(Pointer pointer)
{
    if (__builtin_expect(pointer == nullptr, 0))
        throw std::bad_alloc();
    return pointer;
}

inline void *allocate(cairn_arena *arena, std::size_t bytes, std::size_t alignment)
{
    if (alignment <= CAIRN_ARENA_ALIGNMENT)
        return or_throw(cairn_arena_alloc(arena, bytes));
    return or_throw(cairn_arena_alloc_aligned(arena, bytes, alignment));
}

struct destroyer {
    void operator()(cairn_arena *arena) const noexcept
    {
        cairn_arena_destroy(arena);
    }
    void operator()(cairn_pool *pool) const noexcept
    {
        cairn_pool_destroy(pool);
    }
};

} // namespace detail

class arena
{
  public:
    explicit arena(std::size_t size_hint = 0)
        : owned_(detail::or_throw(cairn_arena_create(size_hint)))
    {
    }

    explicit arena(const cairn_arena_options &options)
        : owned_(detail::or_throw(cairn_arena_create_with(&options)))
    {
    }

    /* Creates a fixed arena in the caller's memory. */
    arena(void *memory, std::size_t bytes)
        : owned_(detail::or_throw(cairn_arena_create_over(memory, bytes)))
    {
    }

    /* Returns the arena, for the functions of arena.h. */
    cairn_arena *get() const noexcept
    {
        return owned_.get();
    }

    void *allocate(std::size_t bytes, std::size_t alignment = CAIRN_ARENA_ALIGNMENT)
    {
        return detail::allocate(get(), bytes, alignment);
    }

    /* Makes an object. Its destructor does not run unless the caller calls it. */
    template <typename T, typename... Arguments> T *make(Arguments &&...arguments)
    {
        return ::new (allocate(sizeof(T), alignof(T))) T(std::forward<Arguments>(arguments)...);
    }

    cairn_arena_point mark() noexcept
    {
        return cairn_arena_mark(get());
    }

    void rewind(cairn_arena_point mark) noexcept
    {
        cairn_arena_rewind(get(), mark);
    }

    void reset() noexcept
    {
        cairn_arena_reset(get());
    }

    void trim(std::size_t keep_bytes = 0) noexcept
    {
        cairn_arena_trim(get(), keep_bytes);
    }

    cairn_arena_stats statistics() const noexcept
    {
        return cairn_arena_statistics(get());
    }

  private:
    std::unique_ptr<cairn_arena, detail::destroyer> owned_;
};

class arena_scope
{
  public:
    explicit arena_scope(const arena &arena) noexcept
        : arena_(arena.get()), mark_(cairn_arena_mark(arena_))
    {
    }

    ~arena_scope()
    {
        cairn_arena_rewind(arena_, mark_);
    }

    arena_scope(const arena_scope &) = delete;
    arena_scope &operator=(const arena_scope &) = delete;

  private:
    cairn_arena *arena_;
    cairn_arena_point mark_;
};

/* The arena must outlive the resource. */
class arena_resource : public std::pmr::memory_resource
{
  public:
    explicit arena_resource(const arena &arena) noexcept : arena_(arena.get())
    {
    }

  private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        return detail::allocate(arena_, bytes, alignment);
    }

    void do_deallocate(void *, std::size_t, std::size_t) override
    {
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    cairn_arena *arena_;
};

/* The arena must outlive every container that uses it. Assignment leaves a container in the arena
 * that it began in, so that the container never keeps memory of an arena that ends before the
 * container. Swapping does exchange the arenas, because otherwise containers of different arenas
 * could not be swapped at all. */
template <typename T> class arena_allocator
{
  public:
    using value_type = T;
    using is_always_equal = std::false_type;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::false_type;
    using propagate_on_container_swap = std::true_type;

    arena_allocator(const arena &arena) noexcept : arena_(arena.get())
    {
    }

    template <typename U>
    arena_allocator(const arena_allocator<U> &other) noexcept : arena_(other.get())
    {
    }

    T *allocate(std::size_t count)
    {
        std::size_t bytes;
        if (__builtin_mul_overflow(count, sizeof(T), &bytes))
            throw std::bad_array_new_length();
        return static_cast<T *>(detail::allocate(arena_, bytes, alignof(T)));
    }

    void deallocate(T *, std::size_t) noexcept
    {
    }

    cairn_arena *get() const noexcept
    {
        return arena_;
    }

    template <typename U> bool operator==(const arena_allocator<U> &other) const noexcept
    {
        return arena_ == other.get();
    }

    template <typename U> bool operator!=(const arena_allocator<U> &other) const noexcept
    {
        return arena_ != other.get();
    }

  private:
    cairn_arena *arena_;
};

enum class sharing { one_thread, any_thread };

/* When the pool ends, it frees the memory of the remaining objects without calling their
 * destructors. */
template <typename T> class pool
{
  public:
    explicit pool(sharing sharing = sharing::one_thread) : owned_(create_with(nullptr, sharing))
    {
    }

    /* Creates a pool that takes its memory from an arena. See cairn_pool_create_with(). */
    explicit pool(const arena &arena, sharing sharing = sharing::one_thread)
        : owned_(create_with(arena.get(), sharing))
    {
    }

    template <typename... Arguments> T *create(Arguments &&...arguments)
    {
        slot memory(get());
        T *object = ::new (memory.room) T(std::forward<Arguments>(arguments)...);
        memory.room = nullptr;
        return object;
    }

    void destroy(T *object) noexcept
    {
        if (object == nullptr)
            return;
        object->~T();
        cairn_pool_free(get(), object);
    }

    /* Returns the pool, for the functions of arena.h. */
    cairn_pool *get() const noexcept
    {
        return owned_.get();
    }

    cairn_pool_stats statistics() const noexcept
    {
        return cairn_pool_statistics(get());
    }

  private:
    /* Gives the memory of an object back if the object's constructor throws. */
    struct slot {
        explicit slot(cairn_pool *from) : pool(from), room(detail::or_throw(cairn_pool_alloc(from)))
        {
        }
        ~slot()
        {
            cairn_pool_free(pool, room);
        }
        slot(const slot &) = delete;
        slot &operator=(const slot &) = delete;

        cairn_pool *pool;
        void *room;
    };

    static cairn_pool *create_with(cairn_arena *arena, sharing sharing)
    {
        cairn_pool_options options{};
        options.object_bytes = sizeof(T);
        options.alignment = alignof(T);
        options.arena = arena;
        options.shared = sharing == cairn::sharing::any_thread;
        return detail::or_throw(cairn_pool_create_with(&options));
    }

    std::unique_ptr<cairn_pool, detail::destroyer> owned_;
};

} // namespace cairn

#endif
